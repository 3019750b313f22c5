// A computer that is not awake yet, or does not wake: what is the matter, what
// is safe and what can be done.

import { api, at } from './api.js'

const $ = (id) => document.getElementById(id)
const every = 1000 // ms between two looks
const titles = { waking: 'Waking up…', asleep: 'Asleep', damaged: 'Something is damaged', failed: 'It does not wake' }

let turn = 0 // the newest call; an older one gives up

/** Waits until a computer is awake, and shows meanwhile why it is not. False when another one was asked for. */
export async function awake(id, first, setState) {
  const mine = ++turn
  for (let computer = first; ; ) {
    if (mine !== turn) return false
    if (computer && !titles[computer.state]) {
      $('wake').hidden = true
      return true
    }
    if (computer) {
      setState(computer.state)
      show(computer)
    }
    await new Promise((r) => setTimeout(r, computer ? every : 0))
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
  $('wake-title').textContent = `${name}: ${titles[state].toLowerCase()}`
  $('wake-why').textContent = trouble.reason
  $('wake-safe').textContent = trouble.safe
  $('wake-hint').textContent = trouble.hint ?? ''
  const more = (trouble.damage ?? []).filter((text) => !trouble.reason.includes(text)) // what the reason doesn't say already
  const list = more.map((text) => Object.assign(document.createElement('li'), { textContent: text }))
  $('wake-damage').replaceChildren(...list)
  for (const button of $('wake').querySelectorAll('[data-repair]')) {
    button.hidden = !trouble.actions.includes(button.dataset.repair)
    button.dataset.id = id
  }
  $('wake-export').href = at(id, '/export')
}

const repairs = {
  retry: (id) => api('POST', at(id, '/wake'), {}),
  without_tasks: (id) => api('POST', at(id, '/wake'), { without_tasks: true }),
  recover: (id) => api('POST', at(id, '/recover')),
}

$('wake').addEventListener('click', async (e) => {
  const button = e.target.closest('button[data-repair]')
  if (!button) return
  button.disabled = true
  $('wake-hint').textContent = ''
  try {
    await repairs[button.dataset.repair](button.dataset.id)
  } catch (problem) {
    $('wake-hint').textContent = problem.words ?? problem.message
  } finally {
    button.disabled = false
  }
})
