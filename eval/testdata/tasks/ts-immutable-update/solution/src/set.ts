export type Json = string | number | boolean | null | Json[] | { [key: string]: Json }

export function setIn(value: Json, path: (string | number)[], next: Json): Json {
  if (path.length === 0) return next
  const [key, ...rest] = path
  if (Array.isArray(value)) {
    const at = Number(key)
    const inner = setIn(value[at] ?? {}, rest, next)
    if (inner === value[at]) return value
    const out = value.slice()
    out[at] = inner
    return out
  }
  const object = value !== null && typeof value === 'object' ? value : {}
  const inner = setIn(object[key] ?? {}, rest, next)
  if (inner === object[key] && object === value) return value
  return { ...object, [key]: inner }
}
