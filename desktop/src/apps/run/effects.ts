import type { EffectFound, EffectOutcome } from '../../contract/contract'
import type { Event } from '../../contract/types'
import { dataOf } from '../../contract/types'

/** What a call of a run changed outside of the computer, or may have. */
export interface EffectView {
  effect: string
  task: string
  attempt: number
  /** A server and its tool, or a method and an address. */
  target: string
  /** What was sent, or its beginning. */
  what: string
  /** The idempotency key that the service was given, if any. */
  key: string
  /** The earlier effect that it made once more, if any. */
  again: string
  /** open: under way. A person's word counts. */
  outcome: 'open' | EffectOutcome
  /** What the service answered, or its beginning, or why there is no answer. */
  detail: string
  /** What a person found of one that was unknown. */
  found?: EffectFound
  note?: string
  time: string
}

/** How many a page keeps of a run: the newest. */
export const mostEffects = 300

/** A run's effects after one more of its events. Each ends once and is resolved once; what comes later counts for nothing. */
export function effectsAfter(list: EffectView[], e: Event): EffectView[] {
  const intended = dataOf(e, 'effect.intended')
  if (intended) {
    if (list.some((x) => x.effect === intended.effect)) return list
    const { effect, target, what = '', key = '', again = '', attempt } = intended
    return [...list, { effect, task: e.task ?? '', attempt, target, what, key, again, outcome: 'open' as const, detail: '', time: e.time }].slice(-mostEffects)
  }
  const ended = dataOf(e, 'effect.ended')
  if (ended) return change(list, ended.effect, 'open', (x) => ({ ...x, outcome: ended.outcome, detail: ended.detail ?? '' }))
  const resolved = dataOf(e, 'effect.resolved')
  if (resolved) {
    return change(list, resolved.effect, 'unknown', (x) => ({ ...x, outcome: resolved.found === 'done' ? 'done' : 'failed', found: resolved.found, ...(resolved.note ? { note: resolved.note } : {}) }))
  }
  return list
}

function change(list: EffectView[], effect: string, from: EffectView['outcome'], to: (e: EffectView) => EffectView): EffectView[] {
  return list.some((x) => x.effect === effect && x.outcome === from) ? list.map((x) => (x.effect === effect && x.outcome === from ? to(x) : x)) : list
}
