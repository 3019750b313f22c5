import { describe, expect, it } from 'vitest'
import { compared, groupsOf } from '../src/apps/timetravel/groups'
import type { Checkpoint } from '../src/link/protocol'

type Some = Partial<Checkpoint> & Pick<Checkpoint, 'kind'>

/** Checkpoints, oldest first. */
function made(...all: Some[]): Checkpoint[] {
  const plain: Omit<Checkpoint, 'kind' | 'sequence' | 'commit' | 'message'> = { author: 'system', verified: 'unknown', files: 1, time: '2026-01-01T00:00:00Z' }
  return all.map((c, i) => ({ ...plain, sequence: i + 1, commit: `c${i + 1}`, message: c.kind, ...c })).reverse()
}

const prompts: Record<string, string> = { r1: 'Make it blue', r2: 'Add a clock' }
const told = (list: Checkpoint[]) => groupsOf(list, (run) => prompts[run]).map((g) => `${g.what} ${g.title}: ${g.head.commit}${g.folded.length ? ` (${g.folded.map((c) => c.commit).join(' ')})` : ''}`)

const run = (r: string, kind: Checkpoint['kind'], message: string = kind): Some => ({ kind, message, run: r, task: `${r}-t`, author: 'associate' })

describe('what was done', () => {
  it.each<[string, Checkpoint[], string[]]>([
    ['nothing', [], []],
    ['a new computer', made({ kind: 'initial' }), ['beginning The beginning: c1']],
    ['a run with edits on its way, and what was kept before it', made({ kind: 'initial' }, run('r1', 'before'), run('r1', 'auto'), run('r1', 'auto'), run('r1', 'task')), ['run Make it blue: c5 (c4 c3 c2)', 'beginning The beginning: c1']],
    ['two tasks of one run', made(run('r1', 'task'), run('r1', 'auto'), run('r1', 'task')), ['run Make it blue: c3 (c2 c1)']],
    ['a run that ends with its own edit', made(run('r1', 'task'), run('r1', 'auto')), ['run Make it blue: c1 (c2)']],
    ['two runs', made(run('r1', 'task'), run('r2', 'task')), ['run Add a clock: c2', 'run Make it blue: c1']],
    ['a run in two parts, with something of a person between', made(run('r1', 'task'), { kind: 'manual', message: 'mine', author: 'person' }, run('r1', 'task')), ['run Make it blue: c3', 'act mine: c2', 'run Make it blue: c1']],
    ['a run that is not known here', made({ ...run('r9', 'task'), message: '# Its **task**\n\nand more' }), ['run Its task: c1']],
    ['a command', made({ kind: 'before', message: 'before npm' }, { kind: 'after', message: 'after npm', author: 'person' }), ['command npm was run: c2 (c1)']],
    ['a command of the desktop', made({ kind: 'after', message: 'after sh', author: 'app' }), ['command The desktop changed something: c1']],
    ['two commands', made({ kind: 'after', message: 'after ls' }, { kind: 'before' }, { kind: 'before' }, { kind: 'after', message: 'after cat' }), ['command cat was run: c4 (c3)', 'itself before: c2', 'command ls was run: c1']],
    ['a restore', made({ kind: 'safety' }, { kind: 'restore', message: 'Undo: Make it blue', author: 'person' }), ['act Undo: Make it blue: c2 (c1)']],
    ['a restore that nobody gave a name', made({ kind: 'initial', commit: 'abcdef012345678' }, { kind: 'restore', message: 'Back to abcdef012345', author: 'person' }, { kind: 'restore', message: 'Undo: Back to abcdef012345', author: 'person' }, { kind: 'restore', message: 'Back to 999999999999' }),
      ['act Went back: c4', 'act Undid going back: c3', expect.stringMatching(/^act Went back to .+, \d\d:\d\d: c2$/), 'beginning The beginning: abcdef012345678']],
    ['what is kept by itself', made({ kind: 'auto', message: 'Automatic checkpoint' }, { kind: 'auto', message: 'Automatic checkpoint' }, { kind: 'auto', message: 'Automatic checkpoint' }), ['itself Automatic checkpoint: c3 (c2 c1)']],
    ['a file that a person put', made({ kind: 'auto', message: 'Automatic checkpoint' }, { kind: 'auto', message: 'a.txt as it was put', author: 'person' }), ['itself a.txt as it was put: c2', 'itself Automatic checkpoint: c1']],
  ])('of %s', (_, list, want) => expect(told(list)).toEqual(want))

  it('has every checkpoint once', () => {
    const kinds: Checkpoint['kind'][] = ['initial', 'auto', 'manual', 'before', 'task', 'push', 'after', 'safety', 'restore']
    let seed = 7
    const draw = (n: number) => (seed = (seed * 48271) % 2147483647) % n
    for (let i = 0; i < 300; i++) {
      const list = made(...Array.from({ length: draw(25) }, () => ({ kind: kinds[draw(kinds.length)]!, ...(draw(2) ? { run: `r${draw(3)}` } : {}), author: draw(2) ? ('person' as const) : ('system' as const) })))
      const all = groupsOf(list, () => undefined).flatMap((g) => {
        expect([...g.folded].sort((a, b) => b.sequence - a.sequence)).toEqual(g.folded)
        return [g.head, ...g.folded]
      })
      expect(all.map((c) => c.commit).sort()).toEqual(list.map((c) => c.commit).sort())
    }
  })
})

it('reads a difference from the older to the newer', () => {
  const [newest, older] = made({ kind: 'manual' }, { kind: 'manual' }) as [Checkpoint, Checkpoint]
  expect(compared(newest, 'c0')).toEqual({ from: 'c0', to: 'c2' })
  expect(compared(newest, 'now')).toEqual({ from: 'c2', to: '' })
  expect(compared(newest, older)).toEqual({ from: 'c1', to: 'c2' })
  expect(compared(older, newest)).toEqual({ from: 'c1', to: 'c2' })
})
