import { beforeEach, describe, expect, it } from 'vitest'
import { useScreen } from '../src/shell/screen'
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
  useScreen.setState({ area: { w: 1280, h: 720 }, phone: false })
})

describe('toasts', () => {
  it('keep what a run’s window shows to themselves while it is seen, in front or not', () => {
    const { open } = useWindows.getState()
    const mine = open({ app: 'run', title: 'a', frame, state: 'normal', props: { run: 'a' } })
    take('checkpoint.created', verified, 'a')
    expect(titles()).toEqual([])
    open({ app: 'welcome', title: 'Welcome', frame: { ...frame, x: 410 }, state: 'normal' })
    take('run.reported', { status: 'failed', summary: 'no' }, 'a')
    take('question.asked', { question: { id: 'q', text: 'Which?' } }, 'a')
    expect(titles()).toEqual([]) // beside another one
    take('run.reported', { status: 'failed', summary: 'no' }, 'b')
    expect(titles()).toEqual(['Run failed']) // it has no window
    take('publish.finished', { conflicts: ['a'] }, 'a')
    expect(titles().at(-1)).toBe('Your version was kept') // its window does not say that
    useWindows.getState().place(mine, frame, 'minimised')
    take('run.reported', { status: 'failed', summary: 'no' }, 'a')
    expect(titles().at(-1)).toBe('Run failed')
  })

  it('say what a covered window shows, unless more than its edge is free', () => {
    const { open } = useWindows.getState()
    open({ app: 'run', title: 'a', frame, state: 'normal', props: { run: 'a' } })
    const above = open({ app: 'welcome', title: 'Welcome', frame: { ...frame, x: 42, y: 42 }, state: 'normal' })
    take('run.reported', { status: 'failed', summary: 'no' }, 'a')
    expect(titles()).toEqual(['Run failed'])
    useWindows.getState().place(above, { ...frame, x: 10 + frame.w / 2 })
    useToasts.getState().settle()
    expect(titles()).toEqual([]) // what a window came to show meanwhile is not said any more
    take('run.reported', { status: 'failed', summary: 'no' }, 'a')
    expect(titles()).toEqual([])
  })

  it('on a phone keep to themselves what the window in front shows', () => {
    useScreen.setState({ phone: true })
    const { open, raise } = useWindows.getState()
    const mine = open({ app: 'run', title: 'a', frame, state: 'normal', props: { run: 'a' } })
    open({ app: 'welcome', title: 'Welcome', frame: { ...frame, x: 700 }, state: 'normal' })
    take('run.reported', { status: 'failed', summary: 'no' }, 'a')
    expect(titles()).toEqual(['Run failed'])
    raise(mine)
    useToasts.getState().settle()
    expect(titles()).toEqual([])
  })

  it('leave checkpoints to Time Travel while that is seen', () => {
    take('checkpoint.created', { ...verified, kind: 'manual' })
    expect(titles()).toEqual(['Checkpoint'])
    useWindows.getState().open({ app: 'timetravel', title: 'Time Travel', frame, state: 'normal' })
    useToasts.getState().settle()
    take('checkpoint.restored', { to: 'c' })
    expect(titles()).toEqual([])
  })

  it('are one of each run, which says what is newest in its place', () => {
    take('checkpoint.created', verified, 'a')
    take('run.reported', { status: 'done', verified: 'unknown', summary: 'yes' }, 'b')
    take('run.reported', { status: 'failed', summary: 'no' }, 'a')
    expect(titles()).toEqual(['Run failed', 'Done, not verified'])
    const [first, second] = useToasts.getState().toasts
    expect(first!.id).toBeGreaterThan(second!.id) // so that a phone shows it
    useToasts.getState().dismiss(first!.id)
    take('run.stood', { for_ms: 1000, why: 'suspended' }, 'a')
    expect(titles()).toEqual(['Done, not verified', 'Stood still']) // its place is gone
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
