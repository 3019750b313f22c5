import { describe, expect, it } from 'vitest'
import type { Checkpoint } from '../src/link/protocol'
import { beginningOf } from '../src/shell/beginning'

const list = (...kinds: string[]) => kinds.map((kind, i) => ({ kind: kind === 'themed' ? 'manual' : kind, commit: `${kind}-${i}`, message: kind === 'themed' ? 'Begins with Day, as the system' : 'mine' }) as Checkpoint)

describe('before all that', () => {
  it.each([
    ['nothing', list(), undefined],
    ['a new computer', list('initial'), 'initial-0'],
    ['one that begins light', list('themed', 'initial'), 'themed-0'],
    ['one that begins light, whose file was kept by itself', list('task', 'themed', 'auto', 'initial'), 'themed-1'],
    ['one of which its person kept something at once', list('task', 'manual', 'initial'), 'initial-2'],
    ['one whose person says the same later', list('themed', 'task', 'auto', 'initial'), 'initial-3'],
    ['one whose beginning is not loaded', list('auto', 'task', 'auto'), 'auto-2'],
  ])('of %s', (_, checkpoints, want) => expect(beginningOf(checkpoints)).toBe(want))
})
