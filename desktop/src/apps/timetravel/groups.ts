import type { Checkpoint } from '../../link/protocol'
import { clock, dayOf, gist, oneLine } from '../../text/format'

/** What was done by one run, command or act of a person, with the checkpoints that it made. */
export interface Group {
  /** The commit of `head`. */
  id: string
  what: 'run' | 'command' | 'act' | 'beginning' | 'itself'
  title: string
  /** The checkpoint that has what was done. */
  head: Checkpoint
  /** The other ones, newest first: made before it, or by itself on the way. */
  folded: Checkpoint[]
}

/** Kinds that are made for the sake of others and that nobody asked for. */
const quiet: Checkpoint['kind'][] = ['auto', 'before', 'safety']

/**
 * Puts checkpoints, newest first, into groups by what was done. What was kept before an act belongs to it, and what was kept by itself
 * one after the other is one group.
 */
export function groupsOf(checkpoints: Checkpoint[], promptOf: (run: string) => string | undefined): Group[] {
  const groups: Group[] = []
  for (const c of checkpoints) {
    const last = groups.at(-1)
    if (last && belongs(c, last)) {
      // The newest piece of a run's work has all that it published.
      if (last.head.kind !== 'task' && c.kind === 'task') {
        last.folded.push(last.head)
        last.folded.sort((a, b) => b.sequence - a.sequence)
        last.head = c
      } else last.folded.push(c)
      continue
    }
    groups.push({ id: c.commit, what: whatOf(c), title: '', head: c, folded: [] })
  }
  for (const g of groups) {
    g.id = g.head.commit
    g.title = titleOf(g, checkpoints, promptOf)
  }
  return groups
}

function belongs(c: Checkpoint, g: Group): boolean {
  if (c.kind === 'initial') return false
  if (g.what === 'run') return c.run === g.head.run && (quiet.includes(c.kind) || c.kind === 'task' || c.kind === 'manual')
  if (c.run) return false
  if (g.what === 'command' || g.what === 'act') return (c.kind === 'before' || c.kind === 'safety') && g.folded.length === 0
  return g.what === 'itself' && quiet.includes(c.kind) && c.author === g.head.author
}

function whatOf(c: Checkpoint): Group['what'] {
  if (c.kind === 'initial') return 'beginning'
  if (c.run && c.kind !== 'restore') return 'run'
  if (c.kind === 'after') return c.message.startsWith('after ') ? 'command' : 'act'
  return quiet.includes(c.kind) ? 'itself' : 'act'
}

function titleOf(g: Group, all: Checkpoint[], promptOf: (run: string) => string | undefined): string {
  const c = g.head
  const message = oneLine(c.message)
  switch (g.what) {
    case 'beginning':
      return 'The beginning'
    case 'run':
      return oneLine(promptOf(c.run!) ?? gist(c.message))
    case 'command': {
      const program = message.slice('after '.length)
      return c.author === 'app' && program === 'sh' ? 'The desktop changed something' : `${program} was run`
    }
    case 'itself':
      return c.kind === 'safety' ? 'As it was before going back' : message
    case 'act':
      return went(message, all)
  }
}

/** Says of a restore's message, which names a commit, to when it went back. */
function went(message: string, all: Checkpoint[]): string {
  const back = /^(Undo: )?Back to ([0-9a-f]{12})$/.exec(message)
  if (!back) return message
  if (back[1]) return 'Undid going back'
  const to = all.find((c) => c.commit.startsWith(back[2]!))
  return to ? `Went back to ${sayDay(dayOf(to.time))}, ${clock(to.time)}` : 'Went back'
}

/** A day within a sentence. */
export const sayDay = (day: string): string => day.replace(/^(Today|Yesterday)$/, (d) => d.toLowerCase())

/** From where to where the difference of a checkpoint and another is read: from the older to the newer. `now` is the live files, another word the commit before it. */
export function compared(c: Checkpoint, other: string | Checkpoint): { from: string; to: string } {
  if (other === 'now') return { from: c.commit, to: '' }
  if (typeof other === 'string') return { from: other, to: c.commit }
  return other.sequence < c.sequence ? { from: other.commit, to: c.commit } : { from: c.commit, to: other.commit }
}
