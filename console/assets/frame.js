import { api, at, Problem } from './api.js'
import { approvalCard } from './approvals.js'
import { Calm } from './calm.js'
import { Health } from './health.js'
import { Inbox } from './inbox.js'
import { questionCard } from './questions.js'
import { Running } from './running.js'
import { Stage } from './stage.js'
import { awake } from './wake.js'

const $ = (id) => document.getElementById(id)
const stateWords = { connecting: 'Connecting', awake: 'Awake', working: 'Working', asleep: 'Asleep', broken: 'Desktop down', gone: 'No answer', waking: 'Waking', damaged: 'Damaged', failed: 'Not awake' }

let cid = ''
let limited = '' // the limit that the person was told of last
let frame = null
let stream = null
const silence = 15_000 // milliseconds: three times the longest silence of its event stream
const liveTries = { since: '', left: 0 } // how often the live page of one dev server may still be tried

const stage = new Stage($('stage'), {
  painted: () => {
    $('waiting').hidden = true
    health.painted()
    if (frame) live(frame.desktop)
  },
  failed: (words) => {
    note(words, 'danger')
    health.gaveUp()
    setTimeout(() => frame && live(frame.desktop), 15_000)
  },
  ailing: (kind, words) => health.ailing(kind, words),
  asked: (place, id) => place === 'inbox' && askedFor(id),
})
const health = new Health(stage, { note, failed })
const running = new Running({ failed })
const inbox = new Inbox({ changed: approvals, failed, note, run: showRun })
const calm = new Calm($('approvals-list'))

start().catch(failed)

async function start() {
  const [computers, account] = await Promise.all([api('GET', '/api/computers'), api('GET', '/api/account')])
  $('account-name').textContent = account.name || 'Signed in'
  fetch('/health').then((r) => r.json()).then((h) => ($('version').textContent = `ChoirOS ${h.version}`), () => {}) // only decoration
  if (computers.length === 0) {
    $('waiting').textContent = 'There is no computer yet.'
    return
  }
  const pick = $('pick')
  for (const c of computers) pick.append(new Option(c.name, c.id))
  $('pick-label').hidden = computers.length < 2
  const last = remembered()
  pick.value = computers.some((c) => c.id === last) ? last : computers[0].id
  pick.addEventListener('change', () => open(pick.value))
  open(pick.value, computers.find((c) => c.id === pick.value))
}

async function open(id, computer) {
  cid = id
  frame = null
  inbox.show(id, null)
  liveTries.since = ''
  health.open(id)
  try {
    localStorage.setItem('choir.computer', id)
  } catch {
    // Without storage the oldest computer is opened next time.
  }
  $('waiting').hidden = false
  $('rewind').disabled = true
  $('spend').textContent = '' // unknown until the computer says so
  if (computer) $('name').textContent = computer.name
  stream?.close()
  const how = await awake(id, computer, { setState, note })
  if (!how) return
  stream = new EventSource(at(id, '/frame/stream'))
  stream.addEventListener('frame', (e) => show(JSON.parse(e.data)))
  hear(stream)
  stream.addEventListener('error', () => {
    if (stream.readyState !== EventSource.OPEN) setState('gone')
    // A browser does not reopen a stream that was refused.
    if (stream.readyState === EventSource.CLOSED) retry(id)
  })
  ;(how === 'back' ? stage.loadBack(id) : stage.load(id)).catch(failed)
}

/** Reports when nothing is heard although the connection holds: a host that stands still closes none. */
function hear(of) {
  let heard = performance.now()
  let silent = false
  const listen = () => {
    heard = performance.now()
    if (silent && frame && of === stream) setState(frame.computer.state)
    silent = false
  }
  for (const name of ['open', 'alive', 'frame']) of.addEventListener(name, listen)
  const look = setInterval(() => {
    if (of !== stream || of.readyState === EventSource.CLOSED) return clearInterval(look)
    if (performance.now() - heard < silence) return
    silent = true
    setState('gone')
  }, 1000)
}

async function retry(id) {
  await new Promise((r) => setTimeout(r, 2000))
  if (id !== cid) return
  try {
    await api('GET', at(id, '/frame'))
    open(id)
  } catch (problem) {
    if (problem.status === 401) location.replace('/claim')
    else if (problem.status >= 500) open(id) // it went to sleep, or it does not wake
    else retry(id)
  }
}

function show(f) {
  frame = f
  document.title = `${f.computer.name} · ChoirOS`
  $('name').textContent = f.computer.name
  setState(f.computer.state)
  $('spend').textContent = money(f.spent_usd)
  $('rehearsal').hidden = !f.provider.rehearsal
  $('unsafe').hidden = !f.unisolated
  $('rewind').disabled = !f.desktop.last_good
  running.show(cid, f)
  if (f.limited && f.limited !== limited) note(`A page or program was refused: ${f.limited}. What was stored is safe.`, 'danger', 30_000)
  limited = f.limited
  inbox.show(cid, f.waiting)
  approvals()
  health.show(f.desktop)
  live(f.desktop)
}

/** Shows the live page instead of the build, or instead of a live page whose dev server is gone, which follows no more edits. */
function live({ mode, since, broken }) {
  // The kept build was chosen by the person, to work with while the source is broken.
  if (stage.shown?.dataset.kept && broken) return
  if (mode !== 'live' || stage.loading || !stage.shown) return
  if (stage.mode === 'live') stage.shown.dataset.since ||= since // it came from the dev server that runs now
  if (stage.shown.dataset.since === since) return
  if (liveTries.since !== since) Object.assign(liveTries, { since, left: 3 })
  if (liveTries.left-- <= 0) return
  stage.load(cid, since).catch(failed)
}

function setState(state) {
  $('state').dataset.state = state
  $('state-word').textContent = stateWords[state] ?? state
}

function approvals() {
  const asked = (frame?.running ?? []).flatMap((run) => [
    ...(run.approvals ?? []).map((approval) => ({ id: approval.id, card: () => approvalCard(approval, decide, whole) })),
    ...(run.questions ?? []).map((question) => ({ id: question.id, card: () => questionCard(run, question, (text) => answer(run, question, text)) })),
  ])
  const open = [...asked, ...inbox.entries()]
  const count = asked.length + inbox.waiting.length // an offer to undo is no question
  $('bell-count').textContent = String(count)
  $('bell-count').hidden = count === 0
  $('bell').setAttribute('aria-label', count ? `Approvals, ${count} waiting` : 'Approvals')
  $('approvals-none').hidden = open.length > 0
  const seen = !$('approvals').hidden
  // Cards that are there stay: somebody may be typing into one. Those that come, or move up, take no click at once.
  const list = $('approvals-list')
  const ids = new Set(open.map(({ id }) => id))
  const there = new Set()
  let gone = false
  for (const card of [...list.children]) {
    if (ids.has(card.dataset.waits)) {
      there.add(card.dataset.waits)
      if (gone && seen) calm.moved(card)
    } else {
      card.remove()
      gone = true
    }
  }
  for (const { id, card } of open) {
    if (there.has(id)) continue
    const made = card()
    made.dataset.waits = id
    list.append(made)
    if (seen) calm.moved(made)
  }
  // The focused card was removed: the cursor goes to the title, and no key that comes too late answers the next one.
  if (gone && seen && document.activeElement === document.body) {
    if (open.length > 0) calm.hold()
    $(open.length > 0 ? 'approvals-title' : 'bell').focus()
  }
}

async function whole(approval) {
  try {
    return await api('GET', at(cid, `/approvals/${approval.id}`))
  } catch (problem) {
    failed(problem)
    throw problem
  }
}

/** Shows a run in the desktop of its computer, which is opened if another one is shown. */
function showRun(computer, run) {
  closeSheets()
  stage.run(computer, run)
  if (computer === cid) return
  $('pick').value = computer
  open(computer)
}

/**
 * The desktop's page, which agents write, asks for what waits. It is shown if somebody has just used that page, with the
 * cursor on its title; and takes no answer for a moment, so that no click that was meant for the page gives one. What the
 * person has open stays. If it may have been the console that was used, the bell only stands out.
 */
function askedFor(id) {
  if (sheets.some(([, sheet]) => !$(sheet).hidden) || document.querySelector('dialog[open]')) return
  if (!calm.frameUsed) {
    if (calm.consoleUsed) pointOut()
    return
  }
  calm.hold()
  $('approvals').hidden = false
  $('bell').setAttribute('aria-expanded', 'true')
  $('approvals-title').focus()
  for (const card of $('approvals-list').children) if (card.dataset.waits === `effect-${id}`) card.scrollIntoView({ block: 'nearest' })
}

function pointOut() {
  if ('asked' in $('bell').dataset) return
  $('bell').dataset.asked = ''
  setTimeout(() => delete $('bell').dataset.asked, 5000)
}

/** The answer names the request that was shown, so that it can't allow another one. */
async function decide(approval, answer) {
  try {
    await api('POST', at(cid, `/approvals/${approval.id}`), { digest: approval.digest, answer })
  } catch (problem) {
    failed(problem)
    throw problem
  }
}

async function answer(run, question, text) {
  try {
    await api('POST', at(cid, `/runs/${run.id}/answer`), { question: question.id, answer: text })
  } catch (problem) {
    failed(problem)
    throw problem
  }
}

$('rewind').addEventListener('click', async () => {
  $('ask-yes').disabled = true
  $('ask-words').replaceChildren(line('Looking at what would change…'))
  $('ask').showModal()
  try {
    const plan = await api('POST', at(cid, '/rewind'), { dry_run: true })
    $('ask-words').replaceChildren(...rewindWords(plan).map(line))
    $('ask-yes').disabled = plan.changes.length === 0
  } catch (problem) {
    $('ask-words').replaceChildren(line(problem.words ?? String(problem)))
  }
})
$('ask-no').addEventListener('click', () => $('ask').close())
$('ask-yes').addEventListener('click', () => {
  $('ask').close()
  health.rewind()
})

function rewindWords({ to, changes }) {
  if (changes.length === 0) return ['The desktop already is as it was at the last good checkpoint.']
  const names = changes.slice(0, 4).map((c) => c.path).join(', ')
  const rest = changes.length > 4 ? ` and ${changes.length - 4} more` : ''
  return [
    `The desktop’s source and theme go back to checkpoint ${to.slice(0, 8)}: ${changes.length} ${changes.length === 1 ? 'file' : 'files'} (${names}${rest}).`,
    'Everything is kept as it is now first, so this can be undone.',
  ]
}

const sheets = [['bell', 'approvals'], ['account', 'account-menu'], ['running-more', 'running-sheet']]
for (const [button, sheet] of sheets) {
  $(button).addEventListener('click', () => toggle(button, sheet, $(sheet).hidden))
}
addEventListener('keydown', (e) => {
  if (e.key.toLowerCase() === 'k' && (e.ctrlKey || e.metaKey) && !e.altKey && !e.shiftKey) {
    e.preventDefault()
    closeSheets()
    stage.prompt()
    return
  }
  if (e.key !== 'Escape') return
  const from = document.activeElement?.closest('.sheet')
  closeSheets()
  if (from) document.querySelector(`[aria-controls="${from.id}"]`).focus()
})
addEventListener('blur', closeSheets) // the focus went into the desktop's frame
addEventListener('pointerdown', (e) => !e.target.closest('.sheet, #bell, #account, #running-more') && closeSheets())

function toggle(button, sheet, open) {
  closeSheets()
  $(sheet).hidden = !open
  if (open && sheet === 'approvals') inbox.look()
  $(button).setAttribute('aria-expanded', String(open))
  if (open) enter(sheet)
}

/** In the document the sheets come after the desktop's frame, where the Tab key does not reach them, so one that opens gets the focus. */
function enter(sheet) {
  const first = [...$(sheet).querySelectorAll('button, input, select')].find((e) => !e.disabled && !e.dataset.aside && e.getClientRects().length > 0)
  if (first) first.focus()
  else if (sheet === 'approvals' && $('approvals-list').children.length > 0) $('approvals-title').focus()
  else document.querySelector(`[aria-controls="${sheet}"]`).focus()
}

function closeSheets() {
  calm.free()
  for (const [button, sheet] of sheets) {
    $(sheet).hidden = true
    $(button).setAttribute('aria-expanded', 'false')
  }
}

$('reload').addEventListener('click', () => {
  closeSheets()
  stage.load(cid, '', true).catch(failed)
})
$('signout').addEventListener('click', () => signOut('/api/signout'))
$('signout-all').addEventListener('click', () => signOut('/api/signout?everywhere=true'))

async function signOut(path) {
  try {
    await api('POST', path)
    location.replace('/claim')
  } catch (problem) {
    failed(problem)
  }
}

function line(text) {
  const p = document.createElement('p')
  p.textContent = text
  return p
}

function note(text, tone = '', ms = tone === 'danger' ? 12_000 : 5000) {
  const p = line(text)
  p.dataset.tone = tone
  $('notes').append(p)
  setTimeout(() => p.remove(), ms)
}

function failed(problem) {
  if (problem instanceof Problem && problem.status === 401) {
    location.replace('/claim')
    return
  }
  note(problem.words ?? String(problem), 'danger')
}

function money(usd) {
  return usd > 0 && usd < 0.01 ? `$${usd.toFixed(4)}` : `$${(usd ?? 0).toFixed(2)}`
}

function remembered() {
  try {
    return localStorage.getItem('choir.computer')
  } catch {
    return null
  }
}
