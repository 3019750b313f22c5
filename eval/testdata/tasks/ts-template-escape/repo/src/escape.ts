const names: Record<string, string> = { '<': '&lt;', '>': '&gt;', '&': '&amp;', '"': '&quot;' }

export function escape(text: string): string {
  for (const [c, name] of Object.entries(names)) text = text.replace(c, name)
  return text
}
