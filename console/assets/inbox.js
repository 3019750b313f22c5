// What waits for a person, of all computers and each once: what runs ask and only a person may answer, effects outside of
// which nobody knows whether they happened, and work that is to be looked at. Of the computer that is shown its frame says it
// at once; the others, which may sleep and are not woken for it, are asked for now and then.

import { api, at } from './api.js'
import { approvalCard } from './approvals.js'
import { effectCard, offerCard, reviewCard, unaskedCard } from './effects.js'
import { questionCard } from './questions.js'

const every = 10_000

export class Inbox {
  /** told has the callbacks changed(), failed(problem), note(words), run(computer, run), which shows a run, and asking(method,
   * path, body), which tells the person of a problem before it rejects. */
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

  /** The computer that is shown, and its frame; null while there is none. */
  show(cid, frame) {
    if (cid !== this.cid) this.look()
    this.cid = cid
    if (!frame) {
      this.here = null
      return
    }
    const asks = frame.running.flatMap((run) => {
      const of = { computer: cid, name: frame.computer.name, run: run.id, prompt: run.prompt }
      return [...(run.approvals ?? []).map((approval) => ({ ...of, kind: 'approval', approval })), ...(run.questions ?? []).map((question) => ({ ...of, kind: 'question', question }))]
    })
    this.here = [...asks, ...frame.waiting]
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

  /** The groups of the sheet, one for each computer of which something is there; the one that is shown comes first. */
  groups() {
    const all = [...this.waiting, ...[...this.offers.values()].map((w) => ({ ...w, kind: 'offer', of: w })), ...this.unasked]
    const groups = new Map()
    for (const w of [...all.filter((w) => w.computer === this.cid), ...all.filter((w) => w.computer !== this.cid)]) {
      if (!groups.has(w.computer)) groups.set(w.computer, { computer: w.computer, name: w.name, entries: [] })
      groups.get(w.computer).entries.push(this.entry(w))
    }
    return [...groups.values()]
  }

  /** Whether something is listed of another computer than the one that is shown. */
  get elsewhere() {
    return [...this.waiting, ...this.offers.values(), ...this.unasked].some((w) => w.computer !== this.cid)
  }

  /** An entry of the sheet: an id, and what makes its card. */
  entry(w) {
    const elsewhere = w.computer === this.cid ? '' : w.name
    const card = {
      approval: () => approvalCard(w.approval, elsewhere, (answer) => this.decide(w, answer), () => this.told.asking('GET', at(w.computer, `/approvals/${w.approval.id}`))),
      question: () => questionCard(w, elsewhere, (text) => this.answer(w, text)),
      effect: () => effectCard(w, elsewhere, this),
      review: () => reviewCard(w, elsewhere, this),
      offer: () => offerCard(w.of, elsewhere, this),
      unknown: () => unaskedCard(w),
    }[w.kind]
    return { id: keyOf(w) + (elsewhere && '-elsewhere'), card }
  }

  /** The answer names the request that was shown, so that it can't allow another one. */
  decide(w, answer) {
    return this.say(w, `/approvals/${w.approval.id}`, { digest: w.approval.digest, answer })
  }

  answer(w, text) {
    return this.say(w, `/runs/${w.run}/answer`, { question: w.question.id, answer: text })
  }

  /** Says it to the computer that asks. Of the one that is shown the next frame has it; another one is asked anew. */
  async say(w, path, body) {
    try {
      await this.told.asking('POST', at(w.computer, path), body)
    } catch (problem) {
      this.look() // somebody else may have answered, or silence
      throw problem
    }
    if (w.computer !== this.cid) this.drop(w)
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
    const other = (x) => x.computer !== w.computer || keyOf(x) !== keyOf(w)
    this.here = this.here?.filter(other) ?? null
    this.all = this.all.filter(other)
    this.told.changed()
    this.look()
  }
}

/** What tells apart what waits in one computer. */
function keyOf(w) {
  switch (w.kind) {
    case 'approval':
      return w.approval.id
    case 'question':
      return `question-${w.run}-${w.question.id}`
    case 'review':
      return `review-${w.review.task}-${w.review.attempt}-${w.review.review}`
    case 'unknown':
      return `unasked-${w.computer}`
    default:
      return `${w.kind}-${w.effect.id}`
  }
}
