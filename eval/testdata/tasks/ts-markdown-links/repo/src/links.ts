export interface Link {
  text: string
  url: string
}

export function links(markdown: string): Link[] {
  const out: Link[] = []
  for (const m of markdown.matchAll(/\[(.*)\]\((.*)\)/g)) out.push({ text: m[1], url: m[2] })
  return out
}
