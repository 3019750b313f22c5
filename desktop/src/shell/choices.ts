import type { Effort, Route } from '../contract/contract'
import type { Choices } from '../link/services'

// What the next prompt can choose beside its words, and what counts where it chooses nothing. The host says what there is;
// what is not there is neither offered nor sent.

/** What was chosen for the prompt that is being written. Nothing of it outlives that prompt. */
export interface Chosen {
  route?: Route
  effort?: Effort
  review?: true
}

/** As much of what was chosen as can be chosen here. */
export function possible(chosen: Chosen, c: Choices = {}): Chosen {
  const out: Chosen = {}
  if (chosen.route && c.routes?.includes(chosen.route)) out.route = chosen.route
  if (chosen.effort && c.efforts?.includes(chosen.effort)) out.effort = chosen.effort
  if (chosen.review && !c.review) out.review = true
  return out
}

const efforts: Record<Effort, string> = { none: 'no thinking', low: 'thinks little', medium: 'thinks some', high: 'thinks much' }

/** What differs from what usually happens, in a few words each. */
export function wordsOf(chosen: Chosen, c: Choices = {}): string[] {
  const { route, effort, review } = possible(chosen, c)
  return [
    route === 'plan' ? 'planned first' : route === 'direct' ? 'one Associate' : '',
    effort ? efforts[effort] : '',
    review || c.review ? 'you look first' : '',
  ].filter(Boolean)
}

/** What an older page handed on, or what is stored. Whatever it holds, no more than is possible is shown or sent. */
export function readChosen(value: unknown): Chosen {
  return Object(value) as Chosen
}
