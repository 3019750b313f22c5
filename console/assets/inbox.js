// What stays until somebody has dealt with it, of all computers and each once: effects outside of which nobody knows
// whether they happened, and work that is to be looked at. Of the computer that is shown its frame says it at once; the
// others, which may sleep and are not woken for it, are asked for now and then.

import { api, at } from './api.js'
import { effectCard, offerCard, reviewCard, unaskedCard } from './effects.js'

const every = 10_000

export class Inbox {
  /** told has the callbacks changed(), failed(problem), note(words) and run(computer, run), which shows a run. */
  constructor(told) {
    this.told = told
    this.cid = ''
    this.here = null // of the computer that is shown, once its frame has said it
    this.all = []
    this.offers = new Map() // what was found to have happened and may be undone, until somebody says whether
    this.asked = 0
    setInterval(() => document.visibilityState === 'visible' && this.look(), every)
    document.addEventListener('visibilitychange', () => document.visibilityState === 'visible' && this.look())
  }

  /** The computer that is shown, and what its frame says of it; null while none does. */
  show(cid, waiting) {
    if (cid !== this.cid) this.look()
    this.cid = cid
    this.here = waiting
  }

  async look() {
    const turn = ++this.asked
    try {
      const all = await api('GET', '/api/inbox')
      if (turn !== this.asked) return
      this.all = all
      this.told.changed()
    } catch (problem) {
      // What is known stays; the frame's stream says that the control plane does not answer.
      if (problem.status === 401) this.told.failed(problem)
    }
  }

  /** What waits. A computer that could not be asked is named in the sheet, and is nothing that waits. */
  get waiting() {
    const known = this.all.filter((w) => w.kind !== 'unknown')
    return this.here ? [...this.here, ...known.filter((w) => w.computer !== this.cid)] : known
  }

  get unasked() {
    return this.all.filter((w) => w.kind === 'unknown' && !(this.here && w.computer === this.cid))
  }

  /** The entries of the sheet: an id each, and what makes its card. */
  entries() {
    const elsewhere = (w) => (w.computer === this.cid ? '' : w.name)
    const open = this.waiting.map((w) =>
      w.kind === 'effect'
        ? { id: `effect-${w.effect.id}${elsewhere(w) && '-elsewhere'}`, card: () => effectCard(w, elsewhere(w), this) }
        : { id: `review-${w.review.task}-${w.review.attempt}-${w.review.review}${elsewhere(w) && '-elsewhere'}`, card: () => reviewCard(w, elsewhere(w), this) },
    )
    const offers = [...this.offers.values()].map((w) => ({ id: `offer-${w.effect.id}`, card: () => offerCard(w, elsewhere(w), this) }))
    const unasked = this.unasked.map((w) => ({ id: `unasked-${w.computer}`, card: () => unaskedCard(w) }))
    return [...open, ...offers, ...unasked]
  }

  run(computer, run) {
    this.told.run(computer, run)
  }

  whole(w) {
    return api('GET', at(w.computer, `/effects/${w.effect.id}`))
  }

  /** What somebody found. It is said once: somebody else's word that came first stands. */
  async resolve(w, found, note) {
    try {
      await api('POST', at(w.computer, `/effects/${w.effect.id}/resolve`), { found, ...(note ? { note } : {}) })
    } catch (problem) {
      this.told.failed(problem)
      this.look()
      throw problem
    }
    if (found === 'done' && w.over) this.offers.set(w.effect.id, w)
    else if (found === 'done') this.told.note('It can be undone there from its run’s window, once the run has ended.')
    this.drop(w)
  }

  /** Has a run undo it outside; the same id again is the same run. */
  async compensate(w, id, words) {
    try {
      const { run } = await api('POST', at(w.computer, `/effects/${w.effect.id}/compensate`), { id, ...(words ? { words } : {}) })
      this.settle(w)
      this.told.run(w.computer, run)
    } catch (problem) {
      this.told.failed(problem)
      throw problem
    }
  }

  /** The offer was taken or declined. */
  settle(w) {
    this.offers.delete(w.effect.id)
    this.told.changed()
  }

  drop(w) {
    const other = (x) => x.effect?.id !== w.effect.id
    this.here = this.here?.filter(other) ?? null
    this.all = this.all.filter(other)
    this.told.changed()
    this.look()
  }
}
