import { describe, expect, it } from 'vitest'
import type { Checkpoint } from '../src/link/protocol'
import { beginningOf } from '../src/shell/tries'

const list = (...kinds: string[]) => kinds.map((kind, i) => ({ kind, commit: `${kind}-${i}` }) as Checkpoint)

describe('before all that', () => {
  it.each([
    ['nothing', list(), undefined],
    ['a new computer', list('initial'), 'initial-0'],
    ['one that begins light', list('manual', 'initial'), 'manual-0'],
    ['one in which something was done', list('auto', 'task', 'before', 'manual', 'auto', 'initial'), 'manual-3'],
    ['one in which something was done at once', list('manual', 'task', 'initial'), 'initial-2'],
    ['one whose beginning is not loaded', list('auto', 'task', 'auto'), 'auto-2'],
  ])('of %s', (_, checkpoints, want) => expect(beginningOf(checkpoints)).toBe(want))
})
