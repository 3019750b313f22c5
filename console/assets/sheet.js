// The list of the sheet: the cards of each computer together, those of the one that is shown first. Cards that are there
// stay, for somebody may be typing into one; those that come, or move, take no click at once.

import { element } from './approvals.js'

export class Sheet {
  constructor(list, calm) {
    this.list = list
    this.calm = calm
    this.sections = new Map() // by computer
    this.named = false
  }

  get cards() {
    return [...this.list.querySelectorAll('[data-waits]')]
  }

  /**
   * Shows groups: {computer, name, entries}, an entry's id and what makes its card. named: whose cards they are is said.
   * seen: somebody may be about to press one. Returns whether one went.
   */
  show(groups, named, seen) {
    const before = this.cards
    const ids = new Set(groups.flatMap(({ entries }) => entries.map(({ id }) => id)))
    const there = new Map()
    for (const card of before) {
      if (ids.has(card.dataset.waits)) there.set(card.dataset.waits, card)
      else card.remove()
    }
    for (const [computer, section] of this.sections) {
      if (groups.some((g) => g.computer === computer)) continue
      section.remove()
      this.sections.delete(computer)
    }
    groups.forEach((group, n) => {
      const section = this.section(group, named)
      if (this.list.children[n] !== section) this.list.insertBefore(section, this.list.children[n] ?? null)
      const cards = section.lastElementChild
      for (const { id, card } of group.entries) {
        if (there.has(id)) continue
        const made = card()
        made.dataset.waits = id
        cards.append(made)
      }
    })
    const after = this.cards
    const same = named === this.named ? after.findIndex((card, i) => card !== before[i]) : 0
    this.named = named
    if (seen && same >= 0) for (const card of after.slice(same)) this.calm.moved(card)
    return there.size < before.length
  }

  section({ computer, name }, named) {
    let section = this.sections.get(computer)
    if (!section) {
      section = document.createElement('section')
      const label = element('p', '')
      label.className = 'of'
      label.id = `of-${computer}`
      section.setAttribute('aria-labelledby', label.id)
      section.append(label, document.createElement('ul'))
      this.sections.set(computer, section)
    }
    section.firstElementChild.textContent = name
    section.firstElementChild.hidden = !named
    return section
  }
}
