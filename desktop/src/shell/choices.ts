import type { Effort, PromptSubmitted, Route } from '../contract/contract'
import type { Choices } from '../link/services'

// What the next prompt can choose beside its words, and what counts where it chooses nothing. The host says what there is;
// what is not there is neither offered nor sent.

/** What was chosen for the prompt that is being written. Nothing of it outlives that prompt. */
export interface Chosen {
  route?: Route
  effort?: Effort
  review?: true
  /** An alias or a name of those that the host offers. */
  model?: string
  /** The most that it may cost, in USD: less than the owner's bound, which no prompt raises. */
  spend?: number
}

/** As much of what was chosen as can be chosen here. */
export function possible(chosen: Chosen, c: Choices = {}, budgetUSD = 0): Chosen {
  const out: Chosen = {}
  if (chosen.route && c.routes?.includes(chosen.route)) out.route = chosen.route
  if (chosen.effort && c.efforts?.includes(chosen.effort)) out.effort = chosen.effort
  if (chosen.review && !c.review) out.review = true
  if (chosen.model && c.models?.includes(chosen.model)) out.model = chosen.model
  const spend = Number(chosen.spend)
  if (spend > 0 && spend <= 10_000 && (!budgetUSD || spend < budgetUSD)) out.spend = spend
  return out
}

const efforts: Record<Effort, string> = { none: 'no thinking', low: 'thinks little', medium: 'thinks some', high: 'thinks much' }

/** What was chosen, as a prompt carries it. */
export function carried({ spend, ...how }: Chosen): Partial<PromptSubmitted> {
  return { ...how, ...(spend ? { budget: { wall_s: 0, tool_calls: 0, tokens: 0, cost_usd: spend } } : {}) }
}

/** What differs from what usually happens, in a few words each. */
export function wordsOf(chosen: Chosen, c: Choices = {}, budgetUSD = 0): string[] {
  const { route, effort, review, model, spend } = possible(chosen, c, budgetUSD)
  return [
    route === 'plan' ? 'planned first' : route === 'direct' ? 'one Associate' : '',
    model ?? '',
    effort ? efforts[effort] : '',
    spend ? `at most $${spend}` : '',
    review || c.review ? 'you look first' : '',
  ].filter(Boolean)
}

/** What an older page handed on, or what is stored. Whatever it holds, no more than is possible is shown or sent. */
export function readChosen(value: unknown): Chosen {
  return Object(value) as Chosen
}
