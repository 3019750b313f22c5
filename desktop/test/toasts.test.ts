import { beforeEach, describe, expect, it } from 'vitest'
import { blank, useRuns } from '../src/stores/runs'
import { useToasts } from '../src/stores/toasts'
import { useWindows } from '../src/stores/windows'
import { event } from './fake'

const frame = { x: 10, y: 10, w: 400, h: 300 }
const titles = () => useToasts.getState().toasts.map((t) => t.title)
const take = (type: string, data: unknown, run?: string) => useToasts.getState().take(event(1, type, data, run ? { run } : {}))
const verified = { commit: 'c', kind: 'task', verified: 'pass', label: 'one' }

beforeEach(() => {
  useToasts.setState({ toasts: [] })
  useWindows.setState({ windows: {}, pending: {}, post: () => {} })
})

describe('toasts', () => {
  it('keep what a run’s window shows to themselves while it is in front', () => {
    const { open } = useWindows.getState()
    const mine = open({ app: 'run', title: 'a', frame, state: 'normal', props: { run: 'a' } })
    take('checkpoint.created', verified, 'a')
    expect(titles()).toEqual([])
    take('checkpoint.created', verified, 'b')
    expect(titles()).toEqual(['Verified checkpoint'])
    open({ app: 'events', title: 'Events', frame, state: 'normal' })
    take('checkpoint.created', verified, 'a')
    expect(titles()).toEqual(['Verified checkpoint', 'Verified checkpoint'])
    useWindows.getState().raise(mine)
    take('run.reported', { status: 'failed', summary: 'no' }, 'a')
    take('question.asked', { question: { id: 'q', text: 'Which?' } }, 'a')
    expect(titles()).toHaveLength(2)
    take('run.reported', { status: 'failed', summary: 'no' }, 'b')
    expect(titles().at(-1)).toBe('Run failed') // its window is not in front
    take('publish.finished', { conflicts: ['a'] }, 'a')
    expect(titles().at(-1)).toBe('Your version was kept') // its window does not say that
  })

  it('say nothing of a run that its user has just discarded', () => {
    const view = { ...blank('d', ''), status: 'failed' as const, tasks: [{ task: 't', kind: 'agent' as const, goal: '', attempt: 1, status: 'failed' as const, calls: [], result: { reviewed: { decision: 'discard' } } as never }] }
    useRuns.setState({ runs: { d: view } })
    take('run.reported', { status: 'failed', summary: 'no' }, 'd')
    expect(titles()).toEqual([])
  })

  it('that say the same again take their own place', () => {
    useToasts.getState().say('warn', 'One')
    useToasts.getState().say('warn', 'Two')
    useToasts.getState().say('warn', 'One')
    expect(titles()).toEqual(['Two', 'One'])
  })
})
