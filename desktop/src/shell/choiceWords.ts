import type { Route } from '../contract/contract'
import type { Choices } from '../link/services'

// What the panel of the choices says of them; the bar itself does without.

/** What each way means. The empty one is the host's own choice. */
export function meaning(route: Route | '', c: Choices = {}): string {
  if (route === 'plan') return 'The Director plans it and hands out the tasks.'
  if (route === 'direct') return 'One Associate does it. If that is not enough, a Director takes over.'
  return c.directWords ? `One line of up to ${c.directWords} words goes to one Associate, anything else to the Director.` : 'The Director plans it.'
}

/** How much is thought where a prompt does not say it. */
export function usualEffort(c: Choices = {}): string {
  const { director, associate } = c
  if (!director && !associate) return 'as the model does by itself'
  if (director === associate) return `${director}, as configured`
  return `as configured: the Director ${director ?? 'as its model does'}, Associates ${associate ?? 'as their model does'}`
}
