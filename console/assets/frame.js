import { api, at, Problem } from './api.js'
import { Calm } from './calm.js'
import { Health } from './health.js'
import { Inbox } from './inbox.js'
import { Memory } from './memory.js'
import { Running } from './running.js'
import { Sheet } from './sheet.js'
import { Stage } from './stage.js'
import { awake } from './wake.js'

const $ = (id) => document.getElementById(id)
const stateWords = { connecting: 'Connecting', awake: 'Awake', working: 'Working', asleep: 'Asleep', broken: 'Desktop down', gone: 'No answer', waking: 'Waking', damaged: 'Damaged', failed: 'Not awake' }

let cid = ''
let limited = '' // the limit that the person was told of last
let frame = null
let account = null
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
const inbox = new Inbox({ changed: approvals, failed, note, run: showRun, asking })
const memory = new Memory({ failed, note, run: showRun })
const calm = new Calm($('approvals-list'))
const waits = new Sheet($('approvals-list'), calm)

start().catch(failed)

// A file that misses the desktop would be shown in the console's place.
for (const type of ['dragover', 'drop'])
  addEventListener(type, (e) => {
    if (!e.dataTransfer.types.includes('Files')) return
    e.preventDefault()
    e.dataTransfer.dropEffect = 'none'
    if (type === 'drop') note('Nothing can be put here. Drop it on the desktop below.')
  })

async function start() {
  const [computers, own] = await Promise.all([api('GET', '/api/computers'), api('GET', '/api/account')])
  account = own
  $('account-name').textContent = account.name || 'Signed in'
  // What of the machine somebody may not do is refused by the control plane; here it is only not offered.
  for (const b of document.querySelectorAll('[data-power]')) b.hidden = !b.dataset.power.split(' ').every((p) => account.powers?.includes(p))
  fetch('/health').then((r) => r.json()).then((h) => ($('version').textContent = `ChoirOS ${h.version}, MIT licence`), () => {}) // only decoration
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
  memory.open(id)
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
  inbox.show(cid, f)
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
  const groups = inbox.groups()
  const count = inbox.waiting.length // an offer to undo is no question
  $('bell-count').textContent = String(count)
  $('bell-count').hidden = count === 0
  $('bell').setAttribute('aria-label', count ? `Approvals, ${count} waiting` : 'Approvals')
  $('approvals-none').hidden = groups.length > 0
  const seen = !$('approvals').hidden
  const gone = waits.show(groups, inbox.elsewhere, seen)
  // The focused card was removed: the cursor goes to the title, and no key that comes too late answers the next one.
  if (gone && seen && document.activeElement === document.body) {
    if (groups.length > 0) calm.hold()
    $(groups.length > 0 ? 'approvals-title' : 'bell').focus()
  }
}

/** Asks the API for something that a card is about; a problem is told to the person, and rejects. */
async function asking(method, path, body) {
  try {
    return await api(method, path, body)
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
  for (const card of waits.cards) if (card.dataset.waits === `effect-${id}`) card.scrollIntoView({ block: 'nearest' })
}

function pointOut() {
  if ('asked' in $('bell').dataset) return
  $('bell').dataset.asked = ''
  setTimeout(() => delete $('bell').dataset.asked, 5000)
}

$('rewind').addEventListener('click', async () => {
  $('ask-yes').disabled = true
  $('ask-words').replaceChildren(line('Looking at what would change…'))
  $('ask').showModal()
  try {
    const how = import('./well.js').then(({ well }) => well(cid, frame.desktop)).catch(() => 'It is not known since when all is well.')
    const [plan, words] = await Promise.all([api('POST', at(cid, '/rewind'), { dry_run: true }), how])
    $('ask-words').replaceChildren(...[words, ...rewindWords(plan)].map(line))
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

const sheets = [['bell', 'approvals'], ['account', 'account-menu'], ['running-more', 'running-sheet'], ['memory-open', 'memory']]
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
  if (from) $(opener(from.id)).focus()
})
addEventListener('blur', closeSheets) // the focus went into the desktop's frame
addEventListener('pointerdown', (e) => !e.target.closest('.sheet, #bell, #account, #running-more') && closeSheets())

function toggle(button, sheet, open) {
  closeSheets()
  $(sheet).hidden = !open
  if (open && sheet === 'approvals') inbox.look()
  if (open && sheet === 'memory') memory.look()
  if (open && sheet === 'account-menu') import('./sheets.js').catch(() => {}) // so that it is there when it is wanted; a failure is told then
  $(button).setAttribute('aria-expanded', String(open))
  if (open) enter(sheet)
}

/** In the document the sheets come after the desktop's frame, where the Tab key does not reach them, so one that opens gets the focus. */
function enter(sheet) {
  // Of what waits, with an answer of the computer that is shown, so that nobody is taken past it.
  const within = (sheet === 'approvals' && $('approvals-list').firstElementChild) || $(sheet)
  const first = [...within.querySelectorAll('button, input, select')].find((e) => !e.disabled && !e.dataset.aside && e.getClientRects().length > 0)
  if (first) first.focus()
  else if (sheet === 'memory') $('memory-title').focus()
  else if (sheet === 'approvals' && $('approvals-list').children.length > 0) $('approvals-title').focus()
  else $(opener(sheet)).focus()
}

/** The button that the cursor goes back to: one in the menu is hidden with it. */
function opener(sheet) {
  return sheet === 'memory' ? 'account' : document.querySelector(`[aria-controls="${sheet}"]`).id
}

function closeSheets() {
  calm.free()
  for (const [button, sheet] of sheets) {
    $(sheet).hidden = true
    $(button).setAttribute('aria-expanded', 'false')
  }
}

for (const b of document.querySelectorAll('[data-sheet]')) {
  b.addEventListener('click', async () => {
    closeSheets()
    try {
      const { open } = await import('./sheets.js')
      await open(b.dataset.sheet, { cid, frame, account, version: $('version').textContent, note, reload })
    } catch (problem) {
      failed(problem)
    }
  })
}
$('reload').addEventListener('click', reload)

function reload() {
  closeSheets()
  stage.load(cid, '', true).catch(failed)
}

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
