export type Query = Record<string, string[]>

export function parseQuery(text: string): Query {
  const out: Query = {}
  for (const part of text.replace('?', '').split('&')) {
    const [key, value] = part.split('=')
    out[key] = [value]
  }
  return out
}

export function stringify(query: Query): string {
  return Object.entries(query)
    .map(([key, values]) => key + '=' + values.join(','))
    .join('&')
}
