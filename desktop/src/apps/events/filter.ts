import type { ActorKind, Event } from '../../contract/types'
import { kindOf } from '../../contract/types'

export { actorKinds as kinds } from '../../contract/types'

export interface Filter {
  text: string
  kind: ActorKind | 'all'
  /** Also show window events. */
  noise: boolean
}

/** Whether an event passes: every word of the text must be in its type, ids or data. */
export function matches(e: Event, f: Filter): boolean {
  if (!f.noise && e.type.startsWith('window.')) return false
  if (f.kind !== 'all' && kindOf(e) !== f.kind) return false
  const words = f.text.toLowerCase().split(/\s+/).filter(Boolean)
  if (words.length === 0) return true
  const hay = `${e.sequence} ${e.type} ${e.id} ${e.run ?? ''} ${e.task ?? ''} ${JSON.stringify(e.data ?? '')}`.toLowerCase()
  return words.every((w) => hay.includes(w))
}
