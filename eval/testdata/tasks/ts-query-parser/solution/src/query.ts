export type Query = Record<string, string[]>

declare function decodeURIComponent(text: string): string
declare function encodeURIComponent(text: string): string

function decode(text: string): string {
  const plain = text.replace(/\+/g, ' ')
  try {
    return decodeURIComponent(plain)
  } catch {
    return plain
  }
}

export function parseQuery(text: string): Query {
  const out: Query = Object.create(null)
  for (const part of text.replace(/^\?/, '').split('&')) {
    if (part === '') continue
    const at = part.indexOf('=')
    const key = decode(at < 0 ? part : part.slice(0, at))
    const value = at < 0 ? '' : decode(part.slice(at + 1))
    ;(out[key] ??= []).push(value)
  }
  return out
}

export function stringify(query: Query): string {
  return Object.entries(query)
    .flatMap(([key, values]) => values.map((value) => encodeURIComponent(key) + '=' + encodeURIComponent(value)))
    .join('&')
}
