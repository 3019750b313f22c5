export type Json = string | number | boolean | null | Json[] | { [key: string]: Json }

export function setIn(value: Json, path: (string | number)[], next: Json): Json {
  const out = value as { [key: string]: Json }
  if (path.length === 1) {
    out[path[0]] = next
    return { ...out }
  }
  out[path[0]] = setIn(out[path[0]], path.slice(1), next)
  return { ...out }
}
