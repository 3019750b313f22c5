import type { ModelWaiting, RunStood } from '../contract/types'

// Numbers, times and names as a person reads them.

export function duration(ms: number): string {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`
  const whole = Math.round(ms / 1000)
  if (whole < 60) return ms < 9950 ? `${(ms / 1000).toFixed(1)} s` : `${whole} s`
  const minutes = Math.floor(whole / 60)
  const seconds = whole % 60
  return minutes < 60 ? `${minutes} min ${seconds} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`
}

/** What a run.stood event says, in words for a person. */
export function stoodStill(d: RunStood): string {
  const lasted = duration(d.for_ms)
  switch (d.why) {
    case 'suspended':
      return `This machine was suspended for ${lasted}; the run went on.`
    case 'stopped':
      return `Choir stood still for ${lasted}; the run went on.`
    default:
      return `A box gave no sign of life for ${lasted}; another one took its place.`
  }
}

/** What a model.waiting event says, in words for a person. */
export function modelWaits(d: ModelWaiting): string {
  const next = d.next ? ` It is tried again at ${clock(d.next)}` : ''
  const until = d.until ? `${next ? ', and' : ' It is'} given up at ${clock(d.until)}.` : next ? '.' : ''
  return `${d.provider}/${d.model}${d.since ? ` since ${clock(d.since)}` : ''}: ${d.message || d.code}.${next}${until}`
}

export function money(usd: number): string {
  if (usd === 0) return '$0.00'
  return usd < 0.01 ? `$${usd.toFixed(4)}` : `$${usd.toFixed(2)}`
}

export function size(bytes: number): string {
  if (bytes < 1 << 10) return `${bytes} bytes`
  return bytes < 1 << 20 ? `${Math.round(bytes / (1 << 10))} KB` : `${(bytes / (1 << 20)).toFixed(1)} MB`
}

export function count(n: number, one: string, many = `${one}s`): string {
  return `${n.toLocaleString('en')} ${n === 1 ? one : many}`
}

const clockFormat = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit' })
const secondsFormat = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' })
const dayFormat = new Intl.DateTimeFormat('en-GB', { weekday: 'long', day: 'numeric', month: 'long' })

export const clock = (iso: string | number): string => clockFormat.format(new Date(iso))
export const clockSeconds = (iso: string): string => secondsFormat.format(new Date(iso))

export function dayOf(iso: string, now: number = Date.now()): string {
  const d = new Date(iso)
  const start = (t: Date) => new Date(t.getFullYear(), t.getMonth(), t.getDate()).getTime()
  const days = Math.round((start(new Date(now)) - start(d)) / 86_400_000)
  if (days === 0) return 'Today'
  if (days === 1) return 'Yesterday'
  return dayFormat.format(d)
}

/** How an author of a document is named: the two loops by their titles, anybody else by name. */
export function authorName(author: string): string {
  return author === 'associate' ? 'The Associate' : author === 'director' ? 'The Director' : author
}

export const short = (commit: string): string => commit.slice(0, 8)

/** A command line as a person would type it, with words quoted that need it. */
export function commandLine(argv: string[]): string {
  if (argv.length === 3 && /^(ba)?sh$/.test(argv[0]!) && argv[1] === '-c') return argv[2]!
  return argv.map((w) => (/^[\w@%+=:,./-]+$/.test(w) ? w : `'${w.replaceAll("'", `'\\''`)}'`)).join(' ')
}

export function oneLine(s: string, most = 160): string {
  const flat = s.replace(/\s+/g, ' ').trim()
  return flat.length > most ? `${flat.slice(0, most - 1)}…` : flat
}

/** The first paragraph of a Markdown text as plain text, on one line. */
export function gist(markdown: string, most = 160): string {
  const first = markdown.trim().split(/\n\s*\n/, 1)[0]!
  return oneLine(first.replace(/^[#>\s]+/, '').replace(/\[([^\]]*)\]\([^)]*\)/g, '$1').replace(/(\*\*|__|\*|`)(\S(?:.*?\S)?)\1/g, '$2'), most)
}
