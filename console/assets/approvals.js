// An approval's card in the sheet: what only the person can grant. What the host knows
// comes first; what the agent says is labelled, and is shown as text, never as markup.

let cards = 0

/**
 * elsewhere names its computer, if that is not the one that is shown. decide(answer) sends the answer and rejects if it was
 * not taken; whole() gives the approval with all that a request would send.
 */
export function approvalCard(approval, elsewhere, decide, whole) {
  const card = document.createElement('li')
  card.className = 'approval'
  const id = `approval-${++cards}`
  const page = approval.kind === 'fetch'
  const request = approval.kind === 'request' ? approval.request : null
  const asks = { fetch: 'read a page at', request: `send a ${approval.method} request to` }[approval.kind] ?? 'connect to'
  const title = element('h3', `A task asks to ${asks} ${target(approval)}`)
  title.id = id
  card.setAttribute('aria-labelledby', id)
  const facts = factsOf()
  // All of it is shown: what it would carry out may stand at its end.
  const all = (name, value) => {
    const told = fact(facts, name, value)
    told.classList.add('all')
    if (value instanceof Node) told.parentElement.classList.add('wide')
  }
  if (elsewhere) fact(facts, 'Computer', elsewhere)
  fact(facts, 'You said', approval.prompt)
  fact(facts, 'Run', short(approval.run), approval.run)
  fact(facts, 'Task', `${short(approval.task)}, attempt ${approval.attempt}`, approval.task)
  if (page) {
    all('Address', approval.url)
    fact(facts, 'Not granted', 'Neither you nor a search named this address. Whoever reads it sees all of it.')
  } else if (request) {
    all('Sends', `${approval.method} ${approval.url}`)
    all('Headers', lines((request.headers ?? []).join('\n'), 'Headers'))
    all('Body', body(request, whole))
    if (approval.again) {
      all('Once more', `It repeats the effect ${short(approval.again)}, which is ${request.before || 'under way'}${request.before === 'unknown' ? ': it may have been done already.' : '.'}`)
    }
    fact(facts, 'Can’t be undone', 'It may change something there that no checkpoint takes back. It is sent once.')
  } else {
    fact(facts, 'Not granted', 'This host and port are beyond what this computer was granted.')
  }
  fact(facts, 'Without an answer', `Denied at ${clock(approval.deadline)}.`)
  card.append(title, facts)
  if (approval.claim) {
    const claim = document.createElement('figure')
    claim.append(element('figcaption', 'The agent’s claim, unchecked'), element('blockquote', approval.claim))
    card.append(claim)
  }
  const actions = document.createElement('div')
  actions.className = 'actions'
  // The first button has the focus when the sheet opens.
  for (const [answer, words] of [['deny', 'Deny'], ['once', 'Allow once'], ...(request ? [] : [['run', 'Allow for this run']])]) {
    const b = element('button', words)
    b.type = 'button'
    b.dataset.answer = answer
    b.setAttribute('aria-describedby', id)
    b.addEventListener('click', async () => {
      for (const e of actions.children) e.disabled = true
      try {
        await decide(answer)
      } catch {
        for (const e of actions.children) e.disabled = false
      }
    })
    actions.append(b)
  }
  card.append(actions)
  return card
}

/** A request's body as far as it is shown, and a button for the rest. */
function body(request, whole) {
  if (!request.size) return element('span', 'None.')
  const held = document.createElement('div')
  const shown = lines(request.body ?? '', 'Body')
  const size = element('small', `${request.size} bytes${request.cut ? ', of which this is the beginning' : ''}`)
  const sum = element('small', `SHA-256 ${request.sha256}`)
  held.append(size, shown, sum)
  if (!request.cut) return held
  const more = element('button', 'Show all of it')
  more.type = 'button'
  more.dataset.aside = 'true' // the sheet opens with the cursor on an answer
  more.addEventListener('click', async () => {
    more.disabled = true
    try {
      shown.textContent = (await whole()).body
      size.textContent = `${request.size} bytes`
      more.remove()
    } catch {
      more.disabled = false
    }
  })
  shown.after(more)
  return held
}

/** Text as it is, which scrolls where it is long. */
function lines(text, name) {
  const box = element('pre', text)
  box.tabIndex = 0
  box.setAttribute('role', 'region')
  box.setAttribute('aria-label', name)
  return box
}

/** The last characters of an id: the first ones are a time, and so the same for ids of one moment. */
export function short(id) {
  return id.slice(-8)
}

function target({ host, port }) {
  return `${host.includes(':') ? `[${host}]` : host}:${port}`
}

export function clock(time) {
  const at = new Date(time)
  return Number.isNaN(at.getTime()) ? 'its deadline' : at.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', second: '2-digit' })
}

/** A list of what the host knows. */
export function factsOf() {
  return document.createElement('dl')
}

/** Adds a fact to such a list, a text or an element; whole is shown to who points at it. */
export function fact(facts, name, value, whole = '') {
  const row = document.createElement('div')
  const told = document.createElement('dd')
  told.append(value)
  if (whole) told.title = whole
  row.append(element('dt', name), told)
  facts.append(row)
  return told
}

export function element(name, text) {
  const e = document.createElement(name)
  e.textContent = text
  return e
}
