const names: Record<string, string> = { '<': '&lt;', '>': '&gt;', '&': '&amp;', '"': '&quot;', "'": '&#39;' }

export function escape(text: string): string {
  return text.replace(/[<>&"']/g, (c) => names[c]!)
}
