// What the computer that is shown was told to keep, and where it is forgotten: what is kept speaks to all later runs in a
// person's name, so no page that agents write can have it forgotten, and no program is offered it.

import { api, at } from './api.js'
import { element, fact, factsOf, short } from './approvals.js'

const $ = (id) => document.getElementById(id)

export class Memory {
  /** told has the callbacks failed(problem), note(words, tone) and run(computer, run), which shows a run. */
  constructor(told) {
    this.told = told
    this.cid = ''
    this.facts = []
    this.gone = null // what was forgotten here last, with the act that an undo has to find
    this.turn = 0
  }

  /** Another computer is shown: what was forgotten in the last one is not offered in this one. */
  open(cid) {
    this.cid = cid
    this.turn++
    this.facts = []
    this.gone = null
    $('memory-list').replaceChildren()
    $('memory-about').hidden = $('memory-none').hidden = true
  }

  /** Reads what is kept, and shows it. */
  async look() {
    const turn = ++this.turn
    this.say(this.facts.length > 0 ? '' : 'Looking at what is kept…')
    try {
      const facts = await api('GET', at(this.cid, '/memory?limit=100'))
      if (turn !== this.turn) return
      this.facts = facts
      this.say('')
    } catch (problem) {
      if (turn !== this.turn) return
      this.say(problem.words ?? String(problem))
      if (problem.status === 401) this.told.failed(problem)
      return
    }
    this.draw()
  }

  /** Says something in the place of the list. */
  say(words) {
    $('memory-told').textContent = words
    $('memory-told').hidden = !words
  }

  draw() {
    const list = $('memory-list')
    const cards = this.facts.map((f) => this.card(f))
    list.replaceChildren(...(this.gone ? [this.goneCard()] : []), ...cards)
    $('memory-about').hidden = cards.length === 0
    $('memory-none').hidden = cards.length > 0
  }

  card(f) {
    const card = document.createElement('li')
    card.className = 'approval'
    card.dataset.fact = f.id
    const words = element('h3', f.text)
    words.id = `fact-${f.id}`
    card.setAttribute('aria-labelledby', words.id)
    const facts = factsOf()
    fact(facts, 'Said by', `${sayer(f)}, ${moment(f.time)}`, f.actor)
    for (const from of f.from ?? []) {
      const source = this.facts.find((x) => x.id === from)
      if (source) fact(facts, 'Follows from', `“${source.text}”`)
      else fact(facts, 'From the event', short(from), from)
    }
    fact(facts, 'Event', short(f.id), f.id)
    const actions = document.createElement('div')
    actions.className = 'actions'
    if (f.run) {
      fact(facts, 'Run', short(f.run), f.run)
      const open = press('Open the run', words, () => this.told.run(this.cid, f.run))
      open.className = 'quiet'
      actions.append(open)
    }
    const forget = press('Forget…', words, () => this.ask(f, card, actions))
    actions.append(forget)
    card.append(words, facts, actions)
    return card
  }

  /** Says what goes with a fact, before it goes. */
  ask(f, card, actions) {
    const gone = following(this.facts, f.id)
    const said = document.createElement('div')
    said.className = 'goes'
    said.setAttribute('role', 'status')
    said.append(element('p', gone.length > 0 ? `With it goes what follows from it, ${gone.length === 1 ? 'one fact' : `${gone.length} facts`}:` : 'Nothing else follows from it.'))
    if (gone.length > 0) {
      const list = document.createElement('ul')
      list.append(...gone.map((x) => element('li', x.text)))
      said.append(list)
    }
    said.append(element('p', 'Runs that go on and all later ones are told so. The log still has what was said.'))
    const heading = card.querySelector('h3')
    const keep = press('Keep it', heading, () => {
      this.draw()
      $('memory-list').querySelector(`[data-fact="${f.id}"] .actions > button:last-child`)?.focus()
    })
    const yes = press(gone.length > 0 ? `Forget all ${gone.length + 1}` : 'Forget it', heading, async () => {
      keep.disabled = yes.disabled = true
      await this.forget(f, gone)
    })
    actions.replaceChildren(keep, yes)
    actions.before(said)
    keep.focus()
  }

  /** Has a fact forgotten, if what goes with it is what was shown. */
  async forget(f, shown) {
    const { cid } = this
    try {
      const now = await api('GET', at(cid, '/memory?limit=100'))
      const ids = (of) => of.map((x) => x.id).sort().join()
      if (now.some((x) => x.id === f.id) && ids(following(now, f.id)) !== ids(shown)) {
        this.facts = now
        this.draw()
        this.say('What goes with it has changed meanwhile. Look at it once more.')
        return
      }
      const { facts } = await api('DELETE', at(cid, `/memory/${f.id}`))
      if (cid === this.cid) this.gone = facts
    } catch (problem) {
      this.told.failed(problem)
    }
    if (cid !== this.cid) return
    await this.look()
    ;($('memory-list').querySelector('.gone button') ?? $('memory-title')).focus()
  }

  goneCard() {
    const card = document.createElement('li')
    card.className = 'approval gone'
    const words = element('h3', this.gone.length === 1 ? `Forgotten: ${this.gone[0].text}` : `Forgotten: ${this.gone[0].text} And ${this.gone.length - 1} that followed from it.`)
    words.id = 'memory-gone'
    card.setAttribute('aria-labelledby', words.id)
    const actions = document.createElement('div')
    actions.className = 'actions'
    const undo = press('Undo', words, async () => {
      undo.disabled = true
      await this.undo()
    })
    actions.append(undo)
    card.append(words, actions)
    return card
  }

  /** Keeps again what was forgotten, while nothing else was done since: an undo is of the last thing that was done. */
  async undo() {
    const { cid, gone } = this
    const same = (facts) => gone.length === facts?.length && gone.every((x) => facts.some((y) => y.id === x.id))
    try {
      const { undone, facts } = await api('POST', at(cid, '/undo'), { dry_run: true })
      if (undone.what === 'forget' && same(facts)) await api('POST', at(cid, '/undo'), { act: undone.sequence })
      else this.told.note('Something else was done since, so an undo is of that now: see Time Travel, or choir undo.', 'danger')
    } catch (problem) {
      this.told.failed(problem)
    }
    if (cid !== this.cid) return
    this.gone = null
    await this.look()
    $('memory-title').focus()
  }
}

/** The facts that are forgotten with one: those that name it as where they came from, and what follows from those. */
function following(facts, id) {
  const gone = new Set([id])
  for (let before = 0; before !== gone.size; ) {
    before = gone.size
    for (const f of facts) if (f.from?.some((x) => gone.has(x))) gone.add(f.id)
  }
  return facts.filter((f) => f.id !== id && gone.has(f.id))
}

/** Who had it kept, in words. */
function sayer(f) {
  if (f.run) return 'You, in the prompt of a run'
  const kind = f.actor.split(':', 1)[0]
  return kind === 'program' ? 'A program of yours' : kind === 'app' ? 'The desktop’s page' : 'You'
}

function press(words, heading, f) {
  const b = element('button', words)
  b.type = 'button'
  b.setAttribute('aria-describedby', heading.id)
  b.addEventListener('click', f)
  return b
}

function moment(time) {
  const when = new Date(time)
  return Number.isNaN(when.getTime()) ? 'at an unknown time' : when.toLocaleString([], { day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit' })
}
