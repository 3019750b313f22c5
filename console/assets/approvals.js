// An approval's card in the sheet: what only the person can grant. What the host knows
// comes first; what the agent says is labelled, and is shown as text, never as markup.

let cards = 0

/** decide(approval, answer) sends the answer and rejects if it was not taken. */
export function approvalCard(approval, decide) {
  const card = document.createElement('li')
  card.className = 'approval'
  const id = `approval-${++cards}`
  const page = approval.kind === 'fetch'
  const title = element('h3', page ? `A task asks to read a page at ${target(approval)}` : `A task asks to connect to ${target(approval)}`)
  title.id = id
  card.setAttribute('aria-labelledby', id)
  const facts = document.createElement('dl')
  const fact = (name, value, whole = '') => {
    const row = document.createElement('div')
    const told = element('dd', value)
    if (whole) told.title = whole
    row.append(element('dt', name), told)
    facts.append(row)
  }
  fact('You said', approval.prompt)
  fact('Run', short(approval.run), approval.run)
  fact('Task', `${short(approval.task)}, attempt ${approval.attempt}`, approval.task)
  if (page) {
    // All of it is shown: what it would carry out may stand at its end.
    fact('Address', approval.url)
    fact('Not granted', 'Neither you nor a search named this address. Whoever reads it sees all of it.')
  } else {
    fact('Not granted', 'This host and port are beyond what this computer was granted.')
  }
  fact('Without an answer', `Denied at ${clock(approval.deadline)}.`)
  card.append(title, facts)
  if (approval.claim) {
    const claim = document.createElement('figure')
    claim.append(element('figcaption', 'The agent’s claim, unchecked'), element('blockquote', approval.claim))
    card.append(claim)
  }
  const actions = document.createElement('div')
  actions.className = 'actions'
  // The first button has the focus when the sheet opens.
  for (const [answer, words] of [['deny', 'Deny'], ['once', 'Allow once'], ['run', 'Allow for this run']]) {
    const b = element('button', words)
    b.type = 'button'
    b.dataset.answer = answer
    b.setAttribute('aria-describedby', id)
    b.addEventListener('click', async () => {
      for (const e of actions.children) e.disabled = true
      try {
        await decide(approval, answer)
      } catch {
        for (const e of actions.children) e.disabled = false
      }
    })
    actions.append(b)
  }
  card.append(actions)
  return card
}

/** The last characters of an id: the first ones are a time, and so the same for ids of one moment. */
function short(id) {
  return id.slice(-8)
}

function target({ host, port }) {
  return `${host.includes(':') ? `[${host}]` : host}:${port}`
}

function clock(time) {
  const at = new Date(time)
  return Number.isNaN(at.getTime()) ? 'its deadline' : at.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', second: '2-digit' })
}

function element(name, text) {
  const e = document.createElement(name)
  e.textContent = text
  return e
}
