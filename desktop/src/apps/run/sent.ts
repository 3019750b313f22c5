import type { EffectView } from './effects'

/** What was sent, for a line: its fields without the key, which says nothing to a person. */
export function sentWords({ what, key }: Pick<EffectView, 'what' | 'key'>): string {
  try {
    const fields: unknown = JSON.parse(what)
    if (typeof fields !== 'object' || fields === null || Array.isArray(fields)) return what
    return Object.entries(fields)
      .filter(([, v]) => v !== key)
      .map(([name, v]) => `${name}: ${typeof v === 'string' ? v : JSON.stringify(v)}`)
      .join(', ')
  } catch {
    return what // it is only the beginning
  }
}
