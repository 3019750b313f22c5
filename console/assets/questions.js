// A question's card in the sheet. The host knows the run; question and choices are a model's words, and stand as such.

import { clock, element, fact, factsOf, short } from './approvals.js'

let cards = 0

/** elsewhere names its computer, if that is not the one that is shown. answer(text) sends the answer and rejects if it was not taken. */
export function questionCard({ run, prompt, question }, elsewhere, answer) {
  const card = document.createElement('li')
  card.className = 'approval'
  const title = element('h3', `The agent of run ${short(run)} asks you`)
  title.id = `question-${++cards}`
  card.setAttribute('aria-labelledby', title.id)
  const facts = factsOf()
  if (elsewhere) fact(facts, 'Computer', elsewhere)
  fact(facts, 'You said', prompt)
  fact(facts, 'Run', short(run), run)
  fact(facts, 'Without an answer', question.default ? `What the agent set counts${until(question.deadline)}: ${question.default}` : `It goes on${until(question.deadline)} without one.`)
  const words = document.createElement('figure')
  words.append(element('figcaption', 'The agent’s words, unchecked'), element('blockquote', question.text))
  const actions = document.createElement('form')
  actions.className = 'actions'
  const send = async (text) => {
    for (const e of actions.elements) e.disabled = true
    try {
      await answer(text)
    } catch {
      for (const e of actions.elements) e.disabled = false
    }
  }
  const button = (text, type) => {
    const b = element('button', text)
    b.type = type
    b.setAttribute('aria-describedby', title.id)
    actions.append(b)
    return b
  }
  for (const choice of question.choices ?? []) {
    const b = button(choice, 'button')
    b.dataset.aside = 'true' // the model chose which one is first
    b.addEventListener('click', () => send(choice))
  }
  card.append(title, facts, words)
  if (actions.children.length === 0) {
    const field = document.createElement('input')
    field.setAttribute('aria-label', 'Your answer')
    field.autocomplete = 'off'
    field.maxLength = 8000
    field.required = true
    actions.append(field)
    button('Answer', 'submit')
    actions.addEventListener('submit', () => send(field.value.trim()))
    const goes = element('p', 'The agent and its model read the answer. ChoirOS asks for no key and no password here.')
    goes.className = 'none'
    card.append(goes)
  }
  // The form itself sends nothing: the page's policy allows no form target.
  actions.addEventListener('submit', (e) => e.preventDefault())
  card.append(actions)
  return card
}

function until(deadline) {
  return Number.isNaN(new Date(deadline ?? '').getTime()) ? '' : ` at ${clock(deadline)}`
}
