import type { Event } from '../contract/types'
import { dataOf } from '../contract/types'
import type { OutputChunk } from '../link/protocol'
import { keptStore } from './kept'

/** The user's own commands (`!cmd`) whose windows were opened, and their output. */
export interface CommandView {
  command: string
  line: string
  chunks: OutputChunk[]
  running: boolean
  exit?: number
  ms?: number
  reason?: string
  /** The next chunk that output must continue with; a hole means asking again. */
  next: number
  truncated: boolean
}

interface CommandsState {
  commands: Record<string, CommandView>
  begin(command: string, line: string): void
  take(e: Event): void
  output(command: string, chunk: OutputChunk): void
  /** Takes kept output; `running` false ends a command whose end was not seen. */
  fill(command: string, chunks: OutputChunk[], running: boolean, exit: number | undefined, truncated: boolean): void
}

const most = 4000

export const useCommands = keptStore<CommandsState>('commands', (set, get) => {
  const change = (command: string, with_: (c: CommandView) => CommandView) =>
    set((s) => {
      const c = s.commands[command]
      return c ? { commands: { ...s.commands, [command]: with_(c) } } : s
    })
  const join = (c: CommandView, chunks: OutputChunk[]): CommandView => {
    const fresh = chunks.filter((x) => x.n >= c.next).sort((a, b) => a.n - b.n)
    if (fresh.length === 0) return c
    const all = [...c.chunks, ...fresh]
    return { ...c, chunks: all.slice(-most), truncated: c.truncated || all.length > most, next: fresh.at(-1)!.n + 1 }
  }
  return {
    commands: {},
    begin: (command, line) =>
      set((s) =>
        s.commands[command] ? s : { commands: { ...s.commands, [command]: { command, line, chunks: [], running: true, next: 0, truncated: false } } },
      ),
    take(e) {
      const done = dataOf(e, 'command.finished')
      if (done) {
        change(done.command, (c) => ({ ...c, running: false, exit: done.exit_code, ms: done.duration_ms, ...(done.reason ? { reason: done.reason } : {}) }))
      }
    },
    output(command, chunk) {
      // Beyond a hole nothing is shown; the app fetches what is missing.
      if (get().commands[command]?.next === chunk.n) change(command, (c) => join(c, [chunk]))
    },
    fill: (command, chunks, running, exit, truncated) =>
      change(command, (c) => ({
        ...join(c, chunks),
        running: c.running && running,
        truncated: c.truncated || truncated,
        ...(exit === undefined ? {} : { exit }),
      })),
  }
})
