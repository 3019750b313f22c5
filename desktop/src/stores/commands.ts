import type { Event } from '../contract/types'
import { dataOf } from '../contract/types'
import type { OutputChunk, Unkept } from '../link/protocol'
import { keptStore } from './kept'

/** Consecutive output of one stream. */
export interface Stretch {
  /** The number of its first chunk, which stays the same while the stretch grows. */
  n: number
  stream: OutputChunk['stream']
  text: string
}

/** The user's own commands (`!cmd`) whose windows were opened, and the end of their output. */
export interface CommandView {
  command: string
  line: string
  output: Stretch[]
  running: boolean
  exit?: number
  ms?: number
  reason?: string
  /** The number of the next chunk: chunks before it were shown and need not be sent again. */
  next: number
  /** Whether the beginning of the output is gone. */
  truncated: boolean
  /** What the command left behind that no checkpoint holds. */
  unkept?: Unkept
}

interface CommandsState {
  commands: Record<string, CommandView>
  begin(command: string, line: string): void
  take(e: Event): void
  /** Adds output; when `running` is false, the command has ended although its end was not seen. */
  fill(command: string, chunks: OutputChunk[], running: boolean, exit: number | undefined, truncated: boolean, unkept?: Unkept): void
}

/** The most output that a window keeps: the page has to lay out all of it. */
export const mostCharacters = 200_000
export const mostLines = 3000

/** Appends chunks and keeps the end. */
export function append(output: Stretch[], chunks: OutputChunk[]): { output: Stretch[]; cut: boolean } {
  const all = [...output]
  for (const c of chunks) {
    const last = all.at(-1)
    if (last?.stream === c.stream) all[all.length - 1] = { ...last, text: last.text + c.text }
    else all.push({ n: c.n, stream: c.stream, text: c.text })
  }
  let characters = mostCharacters
  let lines = mostLines
  for (let i = all.length - 1; i >= 0; i--) {
    const { text } = all[i]!
    let from = Math.max(0, text.length - characters)
    for (let at = text.length; at > 0 && lines > 0; ) {
      at = text.lastIndexOf('\n', at - 1)
      if (at < from) break
      if (--lines === 0) from = at + 1
    }
    characters -= text.length - from
    if (from === 0 && characters > 0 && lines > 0) continue
    return { output: [{ ...all[i]!, text: text.slice(from) }, ...all.slice(i + 1)], cut: from > 0 || i > 0 }
  }
  return { output: all, cut: false }
}

export const useCommands = keptStore<CommandsState>('commands', (set) => {
  const change = (command: string, with_: (c: CommandView) => CommandView) =>
    set((s) => {
      const c = s.commands[command]
      return c ? { commands: { ...s.commands, [command]: with_(c) } } : s
    })
  return {
    commands: {},
    begin: (command, line) =>
      set((s) =>
        s.commands[command] ? s : { commands: { ...s.commands, [command]: { command, line, output: [], running: true, next: 0, truncated: false } } },
      ),
    take(e) {
      const done = dataOf(e, 'command.finished')
      if (done) {
        change(done.command, (c) => ({ ...c, running: false, exit: done.exit_code, ms: done.duration_ms, ...(done.reason ? { reason: done.reason } : {}) }))
      }
    },
    fill: (command, chunks, running, exit, truncated, unkept) =>
      change(command, (c) => {
        const fresh = chunks.filter((x) => x.n >= c.next)
        const { output, cut } = fresh.length > 0 ? append(c.output, fresh) : { output: c.output, cut: false }
        return {
          ...c,
          output,
          next: fresh.at(-1) ? fresh.at(-1)!.n + 1 : c.next,
          running: c.running && running,
          truncated: c.truncated || cut || truncated,
          ...(exit === undefined ? {} : { exit }),
          ...(unkept ? { unkept } : {}),
        }
      }),
  }
})
