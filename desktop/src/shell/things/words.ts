import type { HostError } from '../../link/protocol'
import { count, oneLine } from '../../text/format'
import type { Left } from './gather'

/** Somebody else's name within a sentence: on one line, and its direction marks turn nothing around it. */
export const named = (name: string): string => `\u2068${oneLine(name, 60)}\u2069`

/** The addresses of a text/uri-list; lines that begin with # are comments. A page may have put anything into it. */
export function addresses(list: string): string[] {
  return list.split(/\r?\n/).map((l) => l.trim()).filter((l) => /^[a-z][a-z0-9+.-]*:/i.test(l))
}

/** What comes from elsewhere and begins the prompt bar's line is a prompt: it is no command because of how it begins. */
export const plain = (before: string, words: string): string => (before.trim() === '' && /^\s*[!/]/.test(words) ? `\\${words.trimStart()}` : words)

const endings: Record<string, string> = { jpeg: 'jpg', 'svg+xml': 'svg', 'x-icon': 'ico', 'vnd.microsoft.icon': 'ico' }

/** The name of what was pasted: a picture of the clipboard has none of its own, and browsers call it image.png. */
export function pastedName(file: Pick<File, 'name' | 'type'>, now: Date = new Date()): string {
  if (file.name && !/^image\.\w+$/.test(file.name)) return file.name
  const two = (n: number) => String(n).padStart(2, '0')
  const day = [now.getFullYear(), two(now.getMonth() + 1), two(now.getDate())].join('-')
  const kind = /^\w+\/(\w[\w+.-]*)$/.exec(file.type)?.[1] ?? ''
  return `pasted ${day} ${two(now.getHours())}.${two(now.getMinutes())}${kind && `.${endings[kind] ?? kind}`}`
}

/** What was left out as sentences, one for each reason: the first of them, how many more, and why. */
export function reasons(left: Left[]): string[] {
  const by = new Map<string, Left[]>()
  for (const l of left) by.set(l.why, [...(by.get(l.why) ?? []), l])
  return [...by].map(([why, all]) => {
    const names = all.slice(0, 3).map((l) => named(l.name)).join(', ')
    return `Left out: ${names}${all.length > 3 ? ` and ${(all.length - 3).toLocaleString('en')} more` : ''} (${why}).`
  })
}

/** How bringing things in ended that did not come in whole. */
export function outcome(came: number, rest: number, ended: HostError | null): string {
  const whole = came === 0 ? 'Nothing came in' : `${count(came, 'file')} came in`
  const others = rest === 0 || came === 0 ? '' : `, ${rest.toLocaleString('en')} did not`
  if (!ended) return `${whole}.`
  if (ended.code === 'cancelled') return `Cancelled: ${whole[0]!.toLowerCase()}${whole.slice(1)}${others}.`
  return `${whole}${others}. ${ended.message}${/[.!?]$/.test(ended.message) ? '' : '.'} ${ended.hint}`.trim()
}
