// The cards of what stays until somebody has dealt with it. What the host knows comes first; what a model or a service
// wrote is shown as text, never as markup.

import { element, fact, factsOf } from './approvals.js'

let cards = 0

function cardOf(title) {
  const card = document.createElement('li')
  card.className = 'approval'
  const heading = element('h3', title)
  heading.id = `inbox-${++cards}`
  card.setAttribute('aria-labelledby', heading.id)
  card.append(heading)
  return { card, heading }
}

function origin(facts, w, elsewhere, id) {
  if (elsewhere) fact(facts, 'Computer', elsewhere)
  fact(facts, 'You said', w.prompt)
  if (w.goal && w.goal !== w.prompt) fact(facts, 'Task', w.goal, id.task)
}

/** An effect of which nobody knows whether it happened: what a person found is said here, and nowhere that agents write. */
export function effectCard(w, elsewhere, inbox) {
  const e = w.effect
  const { card, heading } = cardOf(`This may have happened: ${e.target}`)
  const facts = factsOf()
  origin(facts, w, elsewhere, e)
  fact(facts, 'When', moment(e.time))
  sent(facts, e)
  fact(facts, 'It ended', e.detail || 'Without an answer.')
  if (e.key) fact(facts, 'Key', e.key)
  const more = wholeOf(w, inbox)
  const why = element('p', 'Look there first. Nothing makes it again by itself; what you say decides whether its run may.')
  why.className = 'none'
  const form = document.createElement('form')
  form.addEventListener('submit', (s) => s.preventDefault()) // the page's policy allows no form target
  const note = document.createElement('input')
  note.maxLength = 1000
  note.placeholder = 'What you found, in a line (optional)'
  note.setAttribute('aria-label', 'What you found')
  const actions = document.createElement('div')
  actions.className = 'actions'
  // Nothing that is said once has the cursor when the sheet opens, or answers to Enter in the note.
  for (const [found, words] of [['not_done', 'It did not happen'], ['done', 'It happened']]) {
    actions.append(button(words, heading, async () => {
      const all = [note, ...actions.children]
      for (const x of all) x.disabled = true
      try {
        await inbox.resolve(w, found, oneLine(note.value))
      } catch {
        for (const x of all) x.disabled = false
      }
    }))
  }
  const open = button('Open the run', heading, () => inbox.run(w.computer, e.run))
  open.className = 'quiet'
  actions.prepend(open)
  form.append(note, actions)
  card.append(facts, more, why, form)
  return card
}

/** What happened may be undone there, once its run has ended. */
export function offerCard(w, elsewhere, inbox) {
  const { card, heading } = cardOf(`It happened: ${w.effect.target}`)
  const facts = factsOf()
  origin(facts, w, elsewhere, w.effect)
  sent(facts, w.effect)
  const why = element('p', 'A new run can look how it stands there and undo it, if the service can. No checkpoint does.')
  why.className = 'none'
  const form = document.createElement('form')
  form.addEventListener('submit', (s) => s.preventDefault())
  const words = document.createElement('input')
  words.maxLength = 8000
  words.placeholder = 'What else it should know (optional)'
  words.setAttribute('aria-label', 'What else it should know')
  const actions = document.createElement('div')
  actions.className = 'actions'
  const id = newID()
  actions.append(
    button('Leave it', heading, () => inbox.settle(w)),
    button('Have it undone there', heading, async () => {
      const all = [words, ...actions.children]
      for (const x of all) x.disabled = true
      try {
        await inbox.compensate(w, id, words.value.trim())
      } catch {
        for (const x of all) x.disabled = false
      }
    }),
  )
  form.append(words, actions)
  card.append(facts, why, form)
  return card
}

/** Work that is not live before somebody has looked at it, which is done in its run's window. */
export function reviewCard(w, elsewhere, inbox) {
  const r = w.review
  const { card, heading } = cardOf(r.paths === 1 ? 'One changed path waits until you have looked at it' : `${r.paths} changed paths wait until you have looked at them`)
  const facts = factsOf()
  origin(facts, w, elsewhere, r)
  fact(facts, 'Since', moment(r.asked))
  const actions = document.createElement('div')
  actions.className = 'actions'
  actions.append(button('Look at it', heading, () => inbox.run(w.computer, r.run)))
  card.append(facts, actions)
  return card
}

/** A computer that could not be asked: what of it waits is not known, and the others' is listed. */
export function unaskedCard(w) {
  const { card } = cardOf(`What waits in ${w.name} is not known`)
  const why = element('p', `It could not be asked: ${w.reason}`)
  why.className = 'none'
  card.append(why)
  return card
}

/** What was sent, as it was: its beginning if it is long, and then all of it is one press away. */
function sent(facts, { what }) {
  fact(facts, 'Sent', what || 'Nothing beside the call itself.').classList.add('all')
}

/** All that was sent and answered, when somebody asks for it. */
function wholeOf(w, inbox) {
  const more = document.createElement('details')
  const summary = element('summary', 'All of it')
  const text = element('pre', '…')
  text.tabIndex = 0
  text.setAttribute('aria-label', 'All that was sent')
  more.append(summary, text)
  let asked = false
  more.addEventListener('toggle', async () => {
    if (!more.open || asked) return
    asked = true
    try {
      const e = await inbox.whole(w)
      text.textContent = `${e.arguments || '(nothing)'}${e.answered ? `\n\n${e.answered}` : ''}`
    } catch (problem) {
      asked = false
      text.textContent = problem.words ?? String(problem)
    }
  })
  return more
}

function button(words, heading, press) {
  const b = element('button', words)
  b.type = 'button'
  b.setAttribute('aria-describedby', heading.id)
  b.addEventListener('click', press)
  return b
}

const oneLine = (text) => text.replaceAll(/\s+/g, ' ').trim()

function moment(time) {
  const at = new Date(time)
  return Number.isNaN(at.getTime()) ? 'unknown' : at.toLocaleString([], { day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit', second: '2-digit' })
}

/** A UUIDv7: the time, then what nobody else draws. */
function newID() {
  const b = crypto.getRandomValues(new Uint8Array(16))
  for (let i = 0, t = Date.now(); i < 6; i++, t = Math.floor(t / 256)) b[5 - i] = t % 256
  b[6] = (b[6] & 0x0f) | 0x70
  b[8] = (b[8] & 0x3f) | 0x80
  const hex = [...b].map((x) => x.toString(16).padStart(2, '0')).join('')
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-')
}
