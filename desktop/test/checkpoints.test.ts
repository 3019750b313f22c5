import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import type { CheckpointKind } from '../src/contract/types'
import { useCheckpoints } from '../src/stores/checkpoints'
import { event } from './fake'

interface Case { kind: CheckpointKind; task: string; by: string; author: string }
const cases = JSON.parse(readFileSync('../contract/testdata/checkpoint-authors.json', 'utf8')) as Case[]

describe('a checkpoint seen live', () => {
  it.each(cases)('has the author that the host lists: $kind of task "$task" by a $by', ({ kind, task, by, author }) => {
    useCheckpoints.setState({ checkpoints: [] })
    const e = event(1, 'checkpoint.created', { commit: 'a'.repeat(40), tree: 'b'.repeat(40), kind, message: 'm', verified: 'unknown', files: 1 }, { source: `/computers/c/${by}`, ...(task ? { task } : {}) })
    useCheckpoints.getState().take(e)
    expect(useCheckpoints.getState().checkpoints[0]?.author).toBe(author)
  })
})
