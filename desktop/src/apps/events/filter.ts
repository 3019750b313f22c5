import type { Event, Role } from '../../contract/types'
import { roleOf } from '../../contract/types'

export const roles: Role[] = ['user', 'director', 'associate', 'system']

export interface Filter {
  text: string
  role: Role | 'all'
  /** Also show window events. */
  noise: boolean
}

/** Whether an event passes: every word of the text must be in its type, ids or data. */
export function matches(e: Event, f: Filter): boolean {
  if (!f.noise && e.type.startsWith('window.')) return false
  if (f.role !== 'all' && roleOf(e) !== f.role) return false
  const words = f.text.toLowerCase().split(/\s+/).filter(Boolean)
  if (words.length === 0) return true
  const hay = `${e.sequence} ${e.type} ${e.id} ${e.run ?? ''} ${e.task ?? ''} ${JSON.stringify(e.data ?? '')}`.toLowerCase()
  return words.every((w) => hay.includes(w))
}
