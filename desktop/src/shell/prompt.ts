// What a line in the prompt bar means.

export type Parsed =
  | { kind: 'nothing' }
  | { kind: 'prompt'; text: string }
  | { kind: 'exec'; command: string }
  | { kind: 'slash'; name: string; args: string }

/** Reads a line: `!cmd` runs it, `/name args` is a command of the shell, anything else is a prompt. `\!` and `\/` start a prompt with that character. */
export function parse(line: string): Parsed {
  const text = line.trim()
  if (text === '' || text === '!' || text === '/') return { kind: 'nothing' }
  if (text.startsWith('\\!') || text.startsWith('\\/')) return { kind: 'prompt', text: text.slice(1) }
  if (text.startsWith('!')) return { kind: 'exec', command: text.slice(1).trim() }
  const slash = /^\/([a-z][a-z-]*)(?:\s+([\s\S]*))?$/.exec(text)
  return slash ? { kind: 'slash', name: slash[1]!, args: (slash[2] ?? '').trim() } : { kind: 'prompt', text }
}

export interface Completion {
  /** What the line becomes. */
  line: string
  label: string
  hint: string
}

export interface SlashCommand {
  name: string
  args: string
  hint: string
  /** Completions of its argument. */
  values?: () => { value: string; hint: string }[]
}

/** Completions for a line, best first; none unless it starts with a slash. */
export function complete(line: string, commands: SlashCommand[], most = 8): Completion[] {
  const text = line.trimStart()
  if (!text.startsWith('/') || text.includes('\n')) return []
  const space = text.indexOf(' ')
  if (space < 0) {
    const typed = text.slice(1).toLowerCase()
    return commands
      .filter((c) => c.name.startsWith(typed))
      .map((c) => ({ line: `/${c.name}${c.args ? ' ' : ''}`, label: `/${c.name}${c.args ? ` ${c.args}` : ''}`, hint: c.hint }))
      .slice(0, most)
  }
  const command = commands.find((c) => c.name === text.slice(1, space))
  const typed = text.slice(space + 1).trim().toLowerCase()
  return (command?.values?.() ?? [])
    .filter((v) => v.value.toLowerCase().includes(typed) || v.hint.toLowerCase().includes(typed))
    .sort((a, b) => Number(b.value.toLowerCase().startsWith(typed)) - Number(a.value.toLowerCase().startsWith(typed)))
    .map((v) => ({ line: `/${command!.name} ${v.value}`, label: v.value, hint: v.hint }))
    .slice(0, most)
}

/** Lines that were sent before, newest last, without consecutive repeats; ↑ goes back and ↓ forth. */
export class History {
  private at: number
  private draft = ''

  constructor(
    readonly lines: string[] = [],
    private readonly most = 200,
  ) {
    this.at = lines.length
  }

  add(line: string): string[] {
    if (this.lines.at(-1) !== line) this.lines.push(line)
    this.lines.splice(0, Math.max(0, this.lines.length - this.most))
    this.at = this.lines.length
    this.draft = ''
    return this.lines
  }

  /** The line before the current one, or null at the oldest. */
  back(current: string): string | null {
    if (this.at === 0) return null
    if (this.at === this.lines.length) this.draft = current
    this.at--
    return this.lines[this.at] ?? null
  }

  /** The line after the current one; after the newest, what was being typed; null when not in the history. */
  forth(): string | null {
    if (this.at >= this.lines.length) return null
    this.at++
    return this.at === this.lines.length ? this.draft : (this.lines[this.at] ?? null)
  }
}
