// A computer that is not awake yet, or does not wake: what the matter is, what is safe, and
// what can be done.

import { api, at } from './api.js'

const $ = (id) => document.getElementById(id)
const every = 1000 // milliseconds between two requests
const soon = 100 // the same while it wakes, which takes only a few of these
const titles = { waking: 'Waking up…', asleep: 'Asleep', damaged: 'Something is damaged', failed: 'It does not wake' }

let turn = 0 // the number of the newest call; older ones stop
let asked = '' // what was done to wake it, while the outcome is unknown
let done = '' // what to say once it is awake
let wentBack = '' // the computer whose files went back, until it is awake

/**
 * Waits until a computer is awake, and shows meanwhile why it is not. It gives 'back' if its files went back meanwhile,
 * else 'awake'; nothing when another computer was opened instead.
 */
export async function awake(id, first, { setState, note }) {
  const mine = ++turn
  asked = done = $('wake-told').textContent = ''
  for (let computer = first; ; ) {
    if (mine !== turn) return ''
    if (computer && !titles[computer.state]) {
      $('wake').hidden = true
      $('back').close()
      if (done) note(done, '', 15_000)
      const how = wentBack === id ? 'back' : 'awake'
      wentBack = ''
      return how
    }
    if (computer) {
      setState(computer.state)
      show(computer)
      // Opening a computer that only sleeps wakes it.
      if (computer.state === 'asleep' && !computer.trouble) await api('POST', at(id, '/wake'), {}).catch(() => undefined) // the next request shows its state
    }
    await new Promise((r) => setTimeout(r, computer ? (computer.trouble ? every : soon) : 0))
    try {
      computer = (await api('GET', '/api/computers')).find((c) => c.id === id)
      if (!computer) throw new Error('This computer is gone.')
    } catch (problem) {
      if (problem.status === 401) location.replace('/claim')
      setState('gone')
      computer = { ...(computer ?? first ?? { name: 'The computer' }), state: 'waking', trouble: null }
    }
  }
}

function show({ id, name, state, trouble }) {
  $('waiting').hidden = !!trouble
  $('waiting').textContent = titles[state]
  $('wake').hidden = !trouble
  if (!trouble) return
  if (asked) $('wake-told').textContent = `${asked} at ${new Date().toLocaleTimeString()}: it still does not wake.`
  asked = ''
  $('wake-title').textContent = `${name}: ${titles[state].toLowerCase()}`
  $('wake-why').textContent = sentence(trouble.reason)
  $('wake-safe').textContent = trouble.safe
  $('wake-hint').textContent = trouble.hint ?? ''
  $('wake-next').textContent = next(trouble)
  const more = (trouble.damage ?? []).filter((text) => !trouble.reason.includes(text)) // without what the reason says already
  const list = more.map((text) => Object.assign(document.createElement('li'), { textContent: text }))
  $('wake-damage').replaceChildren(...list)
  const best = trouble.actions.includes('recover') ? 'recover' : 'retry'
  for (const button of $('wake').querySelectorAll('[data-repair]')) {
    button.hidden = !trouble.actions.includes(button.dataset.repair)
    button.dataset.id = id
    button.classList.toggle('primary', button.dataset.repair === best)
  }
  $('wake-export').href = at(id, '/export')
}

/** A reason as a sentence. Its first letter stays as it is, for it may be a path. */
const sentence = (text) => (/[.!?…]$/.test(text) ? text : `${text}.`)

function next({ next, tries }) {
  if (next) return `It is tried again by itself at ${new Date(next).toLocaleTimeString()}.`
  return tries ? `It was tried again ${tries} times and is not any more, until you say so.` : ''
}

async function wake(id, options, what, then = '') {
  done = ''
  await api('POST', at(id, '/wake'), options)
  asked = what
  done = then
}

const repairs = {
  retry: (id) => wake(id, {}, 'Tried again'),
  without_tasks: (id) => wake(id, { without_tasks: true }, 'Tried without the tasks’ remains', 'It was opened without what its tasks had left; their runs were cancelled.'),
  recover: (id) => api('POST', at(id, '/recover')),
  rewind: (id) => back(id),
}

$('wake').addEventListener('click', async (e) => {
  const button = e.target.closest('button[data-repair]')
  if (!button) return
  button.disabled = true
  $('wake-told').textContent = ''
  try {
    await repairs[button.dataset.repair](button.dataset.id)
  } catch (problem) {
    $('wake-told').textContent = problem.words ?? problem.message
  } finally {
    button.disabled = false
  }
})

/** Lists the checkpoints that can be restored. */
async function back(id) {
  const list = await api('GET', at(id, '/checkpoints?limit=100'))
  if (list.length === 0) throw new Error('There is no checkpoint to go back to.')
  const options = list.map((c) => {
    const option = document.createElement('option')
    option.value = c.id
    option.textContent = `${c.message.split('\n')[0].slice(0, 60)} · ${new Date(c.time).toLocaleString()} · ${c.id.slice(0, 8)}`
    return option
  })
  $('back').dataset.id = id
  $('back-list').replaceChildren(...options)
  $('back-list').selectedIndex = Math.min(1, options.length - 1) // the newest is most likely what is there already
  $('back').showModal()
  look()
}

let looks = 0 // the number of the newest request: answers to older ones are ignored

/** Says what restoring the chosen checkpoint would change. */
async function look() {
  const mine = ++looks
  $('back-yes').disabled = true
  words('Looking at what would change…')
  try {
    const plan = await api('POST', at($('back').dataset.id, '/restore'), { to: $('back-list').value, dry_run: true })
    if (mine !== looks) return
    words(...planWords(plan))
    $('back-yes').disabled = plan.changes.length === 0
  } catch (problem) {
    if (mine === looks) words(problem.words ?? problem.message)
  }
}

function planWords({ changes, kept }) {
  if (changes.length === 0) return ['The files already are as they were then.']
  const names = changes.slice(0, 6).map((c) => c.path).join(', ')
  const rest = changes.length > 6 ? ` and ${changes.length - 6} more` : ''
  return [
    `${changes.length} ${changes.length === 1 ? 'file changes' : 'files change'}: ${names}${rest}.`,
    ...(kept?.length ? [`${kept.length} ${kept.length === 1 ? 'stays as it is' : 'stay as they are'}: ${kept[0].path}, ${kept[0].reason}.`] : []),
    'Everything is kept as it is now first, so this can be undone.',
  ]
}

function words(...lines) {
  $('back-words').replaceChildren(...lines.map((text) => Object.assign(document.createElement('p'), { textContent: text })))
}

$('back-list').addEventListener('change', look)
$('back-no').addEventListener('click', () => $('back').close())
$('back-yes').addEventListener('click', async () => {
  const mine = ++looks
  $('back-yes').disabled = $('back-list').disabled = true
  words('Going back…')
  try {
    const went = await api('POST', at($('back').dataset.id, '/restore'), { to: $('back-list').value })
    done = `The files are as they were at checkpoint ${went.to.slice(0, 8)}. Undo in Time Travel brings back what was there.`
    asked = `The files went back to checkpoint ${went.to.slice(0, 8)}`
    wentBack = $('back').dataset.id
    $('back').close()
  } catch (problem) {
    // If it was not refused it may have gone back all the same: then no page sends by itself what the one before left.
    if (!(problem.status >= 400 && problem.status < 500)) wentBack = $('back').dataset.id
    if (mine === looks) words(problem.words ?? problem.message)
  } finally {
    $('back-list').disabled = false
  }
})
