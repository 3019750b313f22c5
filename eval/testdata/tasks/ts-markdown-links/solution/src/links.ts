export interface Link {
  text: string
  url: string
}

export function links(markdown: string): Link[] {
  const text = markdown.replace(/^(```|~~~)[^]*?^\1[^\n]*$/gm, '').replace(/(`+)[^`]*?\1/g, '')
  const out: Link[] = []
  const form = /(!?)\[([^\[\]]*)\]\(((?:[^\s()]|\([^\s()]*\))*)(?:\s+"[^"]*")?\)/g
  for (const m of text.matchAll(form)) if (m[1] === '') out.push({ text: m[2], url: m[3] })
  return out
}
