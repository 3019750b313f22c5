import fc from 'fast-check'
import { afterEach, describe, expect, it, vi } from 'vitest'
import { ticks } from '../src/apps/trace/axis'
import { copyOf, partsOf, readContents, turnOf } from '../src/apps/trace/contents'
import { Pacer, readTrace } from '../src/apps/trace/load'
import { covered, extentOf, kindOf, matches, noFilter, rowsOf, totalsOf, treeOf, walk, type Kind } from '../src/apps/trace/tree'
import { concerns, partWords, underWayWords, whatHappened } from '../src/apps/trace/words'
import type { Event } from '../src/contract/types'
import type { Span, Trace } from '../src/link/protocol'
import { event } from './fake'

const zero = Date.parse('2026-03-01T12:00:00Z')
const at = (ms: number) => new Date(zero + ms).toISOString()
const span = (id: string, parent: string, name: string, from: number, to: number | null, more: Partial<Span> = {}): Span => ({
  id, ...(parent && { parent }), name, kind: 'internal', start: at(from), ...(to !== null && { end: at(to) }), ...more,
})
const chat = (id: string, parent: string, from: number, to: number) =>
  span(id, parent, 'chat vendor/model-1', from, to, { kind: 'client', attributes: { 'gen_ai.operation.name': 'chat', 'gen_ai.usage.input_tokens': 100, 'gen_ai.usage.output_tokens': 10, 'gen_ai.usage.cache_read.input_tokens': 60, 'choir.cost_usd': 0.25 } })
const story = (): Trace => ({
  id: 't', run: 'r', ended: true,
  spans: [
    span('run', '', 'invoke_workflow run', 0, 9000, { attributes: { 'choir.verification.status': 'unknown' } }),
    span('director', 'run', 'invoke_agent Director', 10, 9000, { attributes: { 'gen_ai.agent.name': 'Director', 'choir.unfinished': true } }),
    chat('c1', 'director', 20, 400),
    span('task', 'run', 'task agent', 500, 8000, { error: 'failed' }),
    span('a1', 'task', 'invoke_agent Associate', 510, 8000, { error: 'failed', attributes: { 'gen_ai.agent.name': 'Associate', 'choir.attempt': 1 } }),
    span('tool2', 'a1', 'execute_tool edit', 3000, 3200),
    chat('c2', 'a1', 600, 1000),
    span('tool1', 'a1', 'execute_tool bash', 1000, 2000, { error: 'tool_error' }),
    span('wait', 'a1', 'wait_for_model', 4000, 6000),
    span('still', 'a1', 'stand_still', 5000, 5500, { attributes: { 'choir.stood.why': 'suspended' } }),
    span('verify', 'a1', 'verify', 6500, 7000, { attributes: { 'choir.verification.status': 'pass' } }),
  ],
})
const ids = (t: Trace, closed: string[] = [], filter = noFilter) => rowsOf(treeOf(t), new Set(closed), filter).map((r) => '  '.repeat(r.node.depth) + r.node.span.id + (r.faint ? '*' : ''))

describe('a trace', () => {
  it('is a tree, children in the order in which they began', () => {
    expect(ids(story())).toEqual(['run', '  director', '    c1', '  task', '    a1', '      c2', '      tool1', '      tool2', '      wait', '      still', '      verify'])
  })

  it('hides what is below a closed row', () => {
    expect(ids(story(), ['a1', 'director'])).toEqual(['run', '  director', '  task', '    a1'])
    expect(rowsOf(treeOf(story()), new Set(['a1']), noFilter).map((r) => r.open)).toEqual([true, true, null, true, false])
  })

  it('says how each span stands and of what kind it is', () => {
    const said = Object.fromEntries([...walk(treeOf(story()))].map((n) => [n.span.id, `${n.kind} ${n.standing} ${n.title}`]))
    expect(said).toMatchObject({
      run: 'run unknown ', director: 'agent unfinished Director', c1: 'model ok vendor/model-1', task: 'task failed agent', a1: 'agent failed Associate', tool1: 'tool failed bash', wait: 'wait ok for the model',
      still: 'still ok the machine was suspended', verify: 'check ok ',
    })
    expect(treeOf({ ...story(), ended: false, spans: [span('run', '', 'invoke_workflow run', 0, null)] })[0]!.standing).toBe('open')
    expect(treeOf({ ...story(), spans: [span('run', '', 'invoke_workflow run', 0, 5, { error: 'cancelled' })] })[0]!.standing).toBe('cancelled')
  })

  it('with a filter shows what matches, and what that is below', () => {
    expect(ids(story(), ['a1'], { text: 'bash', kind: 'all', failed: false })).toEqual(['run*', '  task*', '    a1*', '      tool1'])
    expect(ids(story(), [], { text: '', kind: 'model', failed: false })).toEqual(['run*', '  director*', '    c1', '  task*', '    a1*', '      c2'])
    expect(ids(story(), [], { text: '', kind: 'all', failed: true })).toEqual(['run*', '  task', '    a1', '      tool1'])
    expect(ids(story(), [], { text: 'nothing like it', kind: 'all', failed: false })).toEqual([])
  })

  it('counts tokens once and times that overlap once', () => {
    expect(totalsOf(treeOf(story()), zero)).toEqual({ ms: 9000, tokensIn: 200, tokensOut: 20, cached: 120, cost: 0.5, models: 2, tools: 2, failed: 3, waitedMs: 2000, stoodMs: 500 })
    expect(covered([[0, 10], [5, 15], [20, 30], [22, 25]])).toBe(25)
    const cut = story()
    cut.spans[0]!.attributes = { 'choir.run.tokens_in': 900, 'choir.run.tokens_out': 90, 'choir.run.cost_usd': 3 }
    expect(totalsOf(treeOf(cut), zero)).toMatchObject({ tokensIn: 900, tokensOut: 90, cost: 3 })
  })

  it('lasts until now while it goes on', () => {
    const open = { ...story(), ended: false, spans: [span('run', '', 'invoke_workflow run', 0, null), chat('c', 'run', 10, 20)] }
    expect(extentOf(treeOf(open), zero + 5000)).toEqual([zero, zero + 5000])
    expect(totalsOf(treeOf(open), zero + 5000).ms).toBe(5000)
    expect(extentOf(treeOf(story()), zero + 99_000)).toEqual([zero, zero + 9000])
    expect(extentOf([], 7)).toEqual([0, 1])
  })

  // Whatever spans come, each has one row, behind the one that it is below, and the rows say how the tree is.
  it('has a row for every span, and rows that tell a tree', () => {
    const any = fc.array(fc.record({ up: fc.nat(20), from: fc.integer({ min: -1000, max: 1000 }), lasts: fc.option(fc.nat(500)), name: fc.constantFrom('chat m', 'task agent', 'execute_tool x', 'verify', 'anything'), error: fc.boolean() }), { maxLength: 40 })
    fc.assert(
      fc.property(any, fc.array(fc.nat(40)), (list, shut) => {
        const spans = list.map((s, i) => span(`s${i}`, i > 0 && s.up < i ? `s${s.up}` : 'elsewhere', s.name, s.from, s.lasts === null ? null : s.from + s.lasts, s.error ? { error: 'failed' } : {}))
        const roots = treeOf({ id: 't', run: 'r', ended: false, spans })
        const all = rowsOf(roots, new Set(), noFilter)
        expect(all.map((r) => r.node.span.id).sort()).toEqual(spans.map((s) => s.id).sort())
        const closed = new Set(shut.map((n) => `s${n}`))
        for (const rows of [all, rowsOf(roots, closed, noFilter), rowsOf(roots, closed, { text: '', kind: 'model', failed: false })]) {
          const seen = new Set<unknown>([null])
          for (const r of rows) {
            expect(seen.has(r.node.parent)).toBe(true)
            expect(r.place >= 1 && r.place <= r.of).toBe(true)
            seen.add(r.node)
          }
        }
        const failed = rowsOf(roots, closed, { text: '', kind: 'all', failed: true }).filter((r) => !r.faint)
        expect(failed.length).toBe([...walk(roots)].filter((n) => matches(n, { text: '', kind: 'all', failed: true })).length)
        const [from, to] = extentOf(roots, zero)
        for (const n of walk(roots)) expect(n.from >= from && !(n.to > to)).toBe(true)
      }),
    )
  })

  it('knows the kinds by their names', () => {
    const names: Record<string, Kind> = { 'invoke_workflow run': 'run', 'invoke_agent Director': 'agent', attempt: 'agent', 'task agent': 'task', 'chat m': 'model', 'execute_tool x': 'tool', wait_for_answer: 'wait', verify: 'check', publish: 'publish', stand_still: 'still', odd: 'other' }
    for (const [name, kind] of Object.entries(names)) expect(kindOf(span('x', '', name, 0, 1))).toBe(kind)
  })
})

describe('the axis', () => {
  it.each([
    [0, 9000, 5, ['0', '2 s', '4 s', '6 s', '8 s']],
    [0, 400, 4, ['0', '100 ms', '200 ms', '300 ms']],
    [900, 1300, 4, ['900 ms', '1.0 s', '1.1 s', '1.2 s']],
    [0, 150_000, 5, ['0', '30 s', '1 min 0 s', '1 min 30 s', '2 min 0 s']],
    [0, 3 * 3_600_000, 4, ['0', '1 h', '2 h', '3 h']],
    [0, 40 * 24 * 3_600_000, 4, ['0', '240 h', '480 h', '720 h']],
  ])('from %d to %d ms', (from, to, most, want) => expect(ticks(from, to, most).map((t) => t.label)).toEqual(want))

  it('has few ticks, at round places within it, each with another label', () => {
    fc.assert(
      fc.property(fc.integer({ min: -1000, max: 10 ** 7 }), fc.integer({ min: 1, max: 10 ** 10 }), fc.integer({ min: 1, max: 12 }), (from, lasts, most) => {
        const list = ticks(from, from + lasts, most)
        expect(list.length).toBeLessThanOrEqual(most)
        for (const t of list) expect(t.at >= from && t.at <= from + lasts).toBe(true)
        for (let i = 1; i < list.length; i++) expect(list[i]!.at).toBeGreaterThan(list[i - 1]!.at)
        expect(new Set(list.map((t) => t.label)).size).toBe(list.length)
      }),
    )
    expect(ticks(5, 5, 4)).toEqual([])
  })
})

describe("a span's contents", () => {
  const log: Event[] = [
    event(1, 'prompt.submitted', { text: 'make it so' }, { run: 'r' }),
    event(2, 'turn.recorded', { attempt: 0, index: 0, message: { role: 'assistant', parts: [{ text: 'the Director’s' }] }, usage: { tokens_in: 100, tokens_out: 10 } }, { run: 'r' }),
    event(3, 'turn.recorded', { attempt: 1, index: 0, message: { role: 'assistant', parts: [{ text: 'another' }] }, usage: { tokens_in: 7, tokens_out: 10 } }, { run: 'r', task: 't' }),
    event(4, 'usage.metered', { call: 'm', role: 'associate', provider: 'p', model: 'm', outcome: 'ok', retries: 0, usage: { tokens_in: 100, tokens_out: 10 } }, { run: 'r', task: 't' }),
    event(5, 'turn.recorded', { attempt: 1, index: 1, told: 'go on', message: { role: 'assistant', parts: [{ text: 'I run it' }, { call: { id: 'k', name: 'bash', args: { command: 'ls' } } }] }, usage: { tokens_in: 100, tokens_out: 10 } }, { run: 'r', task: 't' }),
    event(6, 'tool.called', { call: 'k', name: 'bash', args: { command: 'ls' }, read_only: true, attempt: 1 }, { run: 'r', task: 't' }),
    event(7, 'tool.returned', { call: 'k', name: 'bash', ok: false, output: 'no such folder', duration_ms: 3, attempt: 1, command: { argv: ['ls'], exit_code: 2 } }, { run: 'r', task: 't' }),
  ]
  const asked: [number, number][] = []
  const read = (after: number, limit: number) => {
    asked.push([after, limit])
    const events = log.filter((e) => e.sequence > after).slice(0, limit)
    return Promise.resolve({ events, next: events.at(-1)?.sequence ?? after, more: (events.at(-1)?.sequence ?? 7) < 7, last: 7 })
  }

  it('are arguments and result of a tool, of which only those two events are read', async () => {
    asked.length = 0
    const s = span('x', '', 'execute_tool bash', 0, 1, { from: 6, to: 7 })
    const got = await readContents(s, read)
    expect(asked).toEqual([[5, 1], [6, 1]])
    expect(partsOf(s, got)).toEqual([{ title: 'Arguments', text: '{\n  "command": "ls"\n}' }, { title: 'What went wrong', text: 'no such folder', note: 'Exit code 2.' }])
    expect(JSON.parse(copyOf(s, got))).toEqual({ span: s, events: [log[5], log[6]] })
  })

  it('of a call that goes on are its arguments alone', async () => {
    const s = span('x', '', 'execute_tool bash', 0, null, { from: 6 })
    expect(partsOf(s, await readContents(s, read)).map((p) => p.title)).toEqual(['Arguments'])
  })

  it('of a model’s call are the turn of the same task with the same tokens', async () => {
    const s = span('x', '', 'chat m', 0, 1, { from: 4, to: 4 })
    const got = await readContents(s, read)
    expect(got.turn?.sequence).toBe(5)
    expect(partsOf(s, got)).toEqual([{ title: 'What it was told last', text: 'go on' }, { title: 'What it wrote', text: 'I run it' }, { title: 'Call of bash', text: '{\n  "command": "ls"\n}' }])
    expect(turnOf({ ...log[3]!, task: 'u' }, log)).toBeUndefined()
    expect(turnOf({ ...log[3]!, data: { ...(log[3]!.data as object), outcome: 'timeout' } }, log)).toBeUndefined()
  })

  it('are not another event’s where one is missing, and say so where it lies beside the log', async () => {
    const s = span('x', '', 'execute_tool bash', 0, 1, { from: 60, to: 70 })
    expect(await readContents(s, read)).toEqual({})
    const beside = { ...event(7, 'tool.returned', null, { run: 'r' }), dataref: 'ab' }
    expect(partsOf(s, { to: beside }).map((p) => p.title)).toEqual(['Not shown here'])
    expect(partsOf(s, { to: event(7, 'tool.returned', { command: 5, output: {} }) })).toEqual([]) // not what this page knows of the type
  })
})

describe('reading a trace', () => {
  afterEach(() => void vi.useRealTimers())

  it('puts its pieces together', async () => {
    const whole = story()
    const got = await readTrace((after) => Promise.resolve({ ...whole, spans: whole.spans.slice(after, after + 4), ...(after + 4 < whole.spans.length && { more: true }) }))
    expect(got).toEqual(whole)
    expect(await readTrace(() => Promise.resolve({ ...whole, spans: [], more: true }))).toEqual({ ...whole, spans: [] }) // no end of asking
  })

  it('reads again only after a pause, once for all that happened meanwhile, and not after it was closed', async () => {
    vi.useFakeTimers()
    let n = 0
    const p = new Pacer(() => Promise.resolve(void n++))
    p.note()
    for (let i = 0; i < 50; i++) p.note()
    await vi.advanceTimersByTimeAsync(900)
    expect(n).toBe(1)
    await vi.advanceTimersByTimeAsync(200)
    expect(n).toBe(2)
    await vi.advanceTimersByTimeAsync(5000)
    expect(n).toBe(2)
    p.note()
    await vi.advanceTimersByTimeAsync(0)
    expect(n).toBe(3)
    p.note()
    p.close()
    await vi.advanceTimersByTimeAsync(5000)
    expect(n).toBe(3)
  })

  it('pauses longer where reading takes long, and goes on after a failure', async () => {
    vi.useFakeTimers()
    let n = 0
    const p = new Pacer(() => (n++, new Promise((_, no) => setTimeout(() => no(new Error('gone')), 2000))))
    p.note()
    p.note()
    await vi.advanceTimersByTimeAsync(9000)
    expect(n).toBe(1)
    await vi.advanceTimersByTimeAsync(2000)
    expect(n).toBe(2)
    p.close()
  })
})

describe('health', () => {
  it('is said in words', () => {
    expect(partWords({ name: 'keeper', state: 'failed', restarts: 8 })).toBe('failed too often and is given up')
    expect(partWords({ name: 'keeper', state: 'running', restarts: 0, since: at(0) })).toMatch(/^runs since \d\d:\d\d$/)
    expect(underWayWords({ id: 'r', status: 'waiting', for: 'model' })).toBe('waits for the model')
    expect(underWayWords({ id: 'r', status: 'working' })).toBe('working')
    expect(whatHappened(event(1, 'service.failed', { service: 'theme', error: 'it broke', in_row: 1, again: true }))).toBe('theme failed: it broke It is started again.')
    expect(whatHappened(event(1, 'service.gave_up', { service: 'theme', error: 'it broke', failures: 8, sleeps: false }))).toBe('theme failed 8 times and is given up: it broke')
    expect(whatHappened(event(1))).toBe('')
  })

  it('is asked for again when it may have changed', () => {
    for (const type of ['service.failed', 'service.restarted', 'run.moved', 'prompt.submitted', 'model.waiting', 'question.asked']) expect(concerns(event(1, type))).toBe(true)
    for (const type of ['window.moved', 'file.written', 'tool.called']) expect(concerns(event(1, type))).toBe(false)
  })
})
