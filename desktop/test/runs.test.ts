import { beforeEach, describe, expect, it } from 'vitest'
import type { Event } from '../src/contract/types'
import { makeWhole } from '../src/apps/run/whole'
import { asksFor, deniedWords } from '../src/apps/run/asked'
import { callStands, planStands, standing, taskStands } from '../src/apps/run/standing'
import { blank, changed, discarded, outcome, reduce, useRuns, type RunView } from '../src/stores/runs'
import { describe as say } from '../src/text/describe'
import { event } from './fake'

const usage = { wall_ms: 10, tool_calls: 1, tokens_in: 5, tokens_out: 6, cost_usd: 0.5 }
const result = { version: 1, task: 't', attempt: 1, status: 'ok', summary: 's', verification: { profile: 'smoke', status: 'pass' }, egress: {}, usage }
let n = 0
const of = (type: string, data: unknown): Event => event(++n, type, data, { run: 'r', task: 't' })
const report = (status: string, verified: string) => of('run.reported', { status, verified, summary: 'said', usage })

beforeEach(() => {
  n = 0
  useRuns.setState({ runs: {} })
})

const story = () => [
  of('prompt.submitted', { text: 'make it so' }),
  of('run.started', { document: 'd', provider: 'p', model: 'm' }),
  of('run.planned', { objective: 'It is so', plan: [{ text: 'do', status: 'active', task: 't' }] }),
  of('task.requested', { task: { id: 't', kind: 'agent', goal: 'do', attempt: 1 } }),
  of('tool.called', { call: 'c', name: 'edit', args: {}, read_only: false, attempt: 1 }),
  of('tool.returned', { call: 'c', name: 'edit', ok: true, output: 'fine', duration_ms: 4, attempt: 1 }),
  of('task.finished', { result }),
  report('done', 'pass'),
]

describe('a run', () => {
  it('is what its events say', () => {
    story().forEach((e) => useRuns.getState().take(e))
    const run = useRuns.getState().runs.r!
    expect(run).toMatchObject({ prompt: 'make it so', objective: 'It is so', status: 'done', verified: 'pass', summary: 'said', usage, whole: true, document: 'd' })
    expect(run.tasks).toHaveLength(1)
    expect(run.tasks[0]).toMatchObject({ goal: 'do', status: 'ok', calls: [{ call: 'c', ok: true, output: 'fine' }] })
  })

  it('waits until its work was looked at', () => {
    const asked = (review: number) => of('review.requested', { attempt: 1, review, base: 'b', work: 'w', paths: 2 })
    const answered = of('review.answered', { attempt: 1, review: 1, work: 'w', decision: 'revise', comments: [{ text: 'no' }] })
    const at = (events: Event[]) => events.map((e, i) => ({ ...e, sequence: i + 1 })).reduce(reduce, blank('r', '')).looks
    expect(at([asked(1)])).toEqual([{ task: 't', review: 1, paths: 2 }])
    expect(at([asked(1), answered])).toEqual([])
    expect(at([asked(1), answered, asked(2)])).toEqual([{ task: 't', review: 2, paths: 2 }])
    expect(at([asked(1), report('cancelled', 'unknown')])).toEqual([])
    expect(say(asked(1))).toMatchObject({ title: 'To be looked at' })
  })

  it('keeps what was said to it, and with what it was answered', () => {
    const question = { id: 'q', text: 'Which colour?' }
    const said = [
      of('run.steered', { text: 'the title, too' }),
      of('question.asked', { question }),
      of('question.answered', { question: 'q', answer: 'red' }),
      of('question.answered', { question: 'q', answer: 'green' }), // the first one counts
      of('question.asked', { question: { id: 'p', text: 'Where?' } }),
      of('question.answered', { question: 'p', answer: 'left', default: true }),
      report('done', 'pass'),
    ].reduce(reduce, blank('r', '')).said
    expect(said).toMatchObject([{ text: 'the title, too' }, { asked: 'Which colour?', text: 'red' }, { asked: 'Where?', text: 'left', byDefault: true }])
    expect(said[1]).not.toHaveProperty('byDefault')
  })

  it('knows what it asked a person for, and that silence was a no', () => {
    const asked = (approval: string) => of('approval.requested', { approval, act: { kind: 'request', run: 'r', host: 'shop.invalid', port: 443, method: 'POST' }, digest: 'd', attempt: 1, deadline: '' })
    const run = [asked('a'), asked('b'), of('approval.answered', { approval: 'a', digest: 'd', answer: 'deny', reason: 'nobody answered in time' }), of('approval.answered', { approval: 'a', digest: 'd', answer: 'once' })].reduce(reduce, blank('r', ''))
    expect(run.approvals).toMatchObject([{ approval: 'a', task: 't', answer: 'deny', reason: 'nobody answered in time' }, { approval: 'b' }])
    expect(run.approvals[1]).not.toHaveProperty('answer')
    expect(deniedWords(run.approvals[0]!)).toBe('nobody answered in time')
    expect(asksFor(run.approvals[1]!.act)).toBe('It wants to send a request (POST) to shop.invalid.')
  })

  it('turns only while it works', () => {
    const moved = of('run.moved', { status: 'working' })
    const plan = of('run.planned', { objective: 'o', plan: [{ text: 'do', status: 'active', task: 't' }] })
    const task = of('task.requested', { task: { id: 't', kind: 'agent', goal: 'do', attempt: 1 } })
    const started = of('task.started', { attempt: 1 })
    const call = of('tool.called', { call: 'c', name: 'edit', args: {}, read_only: false, attempt: 1 })
    const works = [moved, plan, task, started, call].reduce(reduce, blank('r', ''))
    const marks = (run: RunView) => [standing(run).kind, planStands(run, run.plan[0]!), taskStands(run, run.tasks[0]!), callStands(run, 't', run.tasks[0]!.calls[0]!.ok)]
    expect(marks(works)).toEqual(['active', 'active', 'active', 'active'])
    expect(marks(reduce(works, of('run.commanded', { command: 'pause' })))).toEqual(['paused', 'paused', 'paused', 'paused'])
    const asks = [of('approval.requested', { approval: 'a', act: { kind: 'egress', run: 'r', host: 'h', port: 443 }, digest: 'd', attempt: 1, deadline: '' }), of('run.moved', { status: 'waiting' })]
    expect(marks(asks.reduce(reduce, works))).toEqual(['waiting', 'waiting', 'waiting', 'waiting'])
    expect(marks(reduce(works, report('failed', 'unknown')))).toEqual(['fail', 'unknown', 'unknown', 'unknown'])
    expect([callStands(works, 't', true), callStands(works, 't', false)]).toEqual(['did', 'fail'])
  })

  it('that was discarded is no failure, and leaves nothing to undo', () => {
    const finished = (more: object) => of('task.finished', { result: { ...result, ...more } })
    const run = [finished({ status: 'failed', reviewed: { decision: 'discard', by: 'person:u', at: '', work: 'w' } }), report('failed', 'unknown')].reduce(reduce, blank('r', ''))
    expect([standing(run), discarded(run), changed(run)]).toEqual([{ kind: 'dropped', text: 'discarded by you' }, true, false])
    const wrote = finished({ head: 'h', changes: [{ path: 'a', op: 'added', added: 1, removed: 0 }] })
    expect([reduce(blank('r', ''), wrote), reduce(blank('r', ''), finished({ head: 'h' }))].map(changed)).toEqual([true, false])
  })

  it('counts each event once', () => {
    const events = story()
    const once = events.reduce(reduce, blank('r', ''))
    const twice = [...events, ...events].reduce(reduce, blank('r', ''))
    expect(twice).toEqual(once)
  })

  it('is whole after its history was asked for, and keeps what came meanwhile', () => {
    const events = story()
    const last = events.at(-1)!
    useRuns.getState().take(last)
    expect(useRuns.getState().runs.r?.whole).toBe(false)
    expect(useRuns.getState().fill('r', events.slice(0, -1))).toBe(false) // older than what was seen
    expect(useRuns.getState().runs.r?.whole).toBe(false)
    expect(useRuns.getState().fill('r', events)).toBe(true)
    expect(useRuns.getState().runs.r).toMatchObject({ whole: true, objective: 'It is so', status: 'done' })
  })

  it('is whole although it says more while it is asked for', async () => {
    const events = story()
    let known = 3
    useRuns.getState().take(events[2]!)
    const asked: number[] = []
    const page = async (after: number) => {
      asked.push(after)
      const answer = events.filter((e) => e.sequence > after).slice(0, Math.min(2, known - after))
      const more = (answer.at(-1)?.sequence ?? after) < known
      if (!more && known < 6) useRuns.getState().take(events[known++]!) // events that this answer does not have
      return Promise.resolve({ events: answer, more })
    }
    await makeWhole('r', page, () => false)
    expect(useRuns.getState().runs.r).toMatchObject({ whole: true, prompt: 'make it so', objective: 'It is so', last: 6 })
    expect(asked).toEqual([0, 2, 3, 4, 5])
  })

  it('does not ask for ever for what it is not told', async () => {
    const all = story()
    useRuns.getState().take(all.at(-1)!)
    const events = all.slice(0, 2)
    let asked = 0
    await makeWhole('r', (after) => Promise.resolve({ events: asked++ === 0 ? events : events.filter((e) => e.sequence > after), more: false }), () => false)
    expect(asked).toBe(2)
    expect(useRuns.getState().runs.r?.whole).toBe(false)
    await expect(makeWhole('none', () => Promise.resolve({ events: [], more: false }), () => false)).rejects.toThrow('no run')
  })

  it.each([
    ['done', 'pass', 'pass', 'ok'],
    ['done', 'unknown', 'unknown', 'warn'],
    ['done', 'fail', 'fail', 'danger'],
    ['failed', 'unknown', 'fail', 'danger'],
    ['failed', 'pass', 'fail', 'danger'],
    ['cancelled', 'unknown', 'fail', 'plain'],
  ])('that is %s with verification %s is shown as %s', (status, verified, want, tone) => {
    const e = report(status, verified)
    const run = reduce(blank('r', ''), e)
    expect(outcome(run)).toBe(want)
    expect(say(e)?.tone).toBe(tone)
  })

  it('that goes on has no outcome, whatever its tasks found', () => {
    expect(outcome(story().slice(0, -1).reduce(reduce, blank('r', '')))).toBe('open')
  })

  it('drops streamed text when it reports', () => {
    story().slice(0, 3).forEach((e) => useRuns.getState().take(e))
    useRuns.getState().tokens('r', 'think')
    useRuns.getState().tokens('r', 'ing')
    expect(useRuns.getState().runs.r?.stream).toBe('thinking')
    useRuns.getState().take(report('done', 'pass'))
    useRuns.getState().tokens('r', 'late')
    expect(useRuns.getState().runs.r?.stream).toBe('')
  })

  it('survives data that are not what the type says', () => {
    for (const type of ['run.planned', 'task.finished', 'task.requested', 'run.reported', 'theme.changed', 'checkpoint.created']) {
      for (const data of [undefined, null, {}, 'x', 7]) {
        expect(() => say(event(1, type, data))).not.toThrow()
      }
    }
  })
})

it('shows what an attempt never heard of as unknown, whatever the next one hears of a call of the same id', () => {
  const called = (attempt: number) => of('tool.called', { call: 'step-0', name: 'run', args: { argv: ['deploy'] }, attempt })
  const started = (attempt: number) => of('task.started', { attempt, box: 'b', base: 'x', fence: 'f' })
  const events = [started(1), called(1), started(2), called(2), of('tool.returned', { call: 'step-0', name: 'run', ok: true, output: 'deployed', duration_ms: 5, attempt: 2 })]
  expect(events.reduce(reduce, blank('r', '')).tasks[0]!.calls.map((c) => c.ok)).toEqual([undefined, true])
})
