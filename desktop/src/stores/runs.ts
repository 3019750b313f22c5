import type { AssociateResult, Event, ModelWaiting, PlanItem, Question, ResultStatus, RunStatus, Usage, Verification, Verified } from '../contract/types'
import type { ApprovalAnswered, ApprovalRequested, DirectorTask } from '../contract/contract'
import { dataOf } from '../contract/types'
import type { RunSummary } from '../link/protocol'
import { stoodStill } from '../text/format'
import { keptStore } from './kept'

export interface ToolCall {
  /** Unique within the attempt. */
  call: string
  attempt: number
  name: string
  args: unknown
  /** Absent while the call is under way; of a call that never returned it is unknown. */
  ok?: boolean
  output?: string
  ms?: number
}

export interface TaskView extends Pick<DirectorTask, 'goal' | 'attempt'> {
  task: string
  /** Empty until an event says it. */
  kind: DirectorTask['kind'] | ''
  status: 'waiting' | 'working' | ResultStatus
  calls: ToolCall[]
  verification?: Verification
  result?: AssociateResult
  /** What it was told to do, whole; absent until an event says it. */
  told?: DirectorTask
}

/** A loop that waits for its model: the Director, whose task is '', or a task's. */
export interface ModelWait extends ModelWaiting {
  task: string
}

/** Work of a task that waits until the user has looked at it. */
export interface Look {
  task: string
  review: number
  paths: number
}

/** Something that the run was not granted: a person is asked for it on the console. */
export interface ApprovalView extends Pick<ApprovalRequested, 'approval' | 'act'> {
  task: string
  /** Absent while it waits. */
  answer?: ApprovalAnswered['answer']
  /** Why it was denied, if no person did that. */
  reason?: string
}

/** What a person said to a run while it went on. */
export interface SaidView {
  time: string
  text: string
  /** The question that it answers. */
  asked?: string
  /** Nobody answered, so that the default counted. */
  byDefault?: boolean
}

export interface RunView extends RunSummary {
  objective: string
  plan: PlanItem[]
  tasks: TaskView[]
  questions: (Question & { answer?: string })[]
  provider: string
  model: string
  reason: string
  error: string
  paused: boolean
  /** The newest of what was said to it. */
  said: SaidView[]
  /** What it was not granted, and what a person said to that. */
  approvals: ApprovalView[]
  /** How many tools were called. */
  called: number
  /** The run that it goes on from, if any. */
  continues: string
  /** How long the run stood still, in milliseconds, because the machine or choir did. */
  stood: number
  /** What stood still last, in words for a person. */
  stoodWords: string
  /** The loops that wait for their model, which can't be had now. */
  waits: ModelWait[]
  /** What its tasks made that waits until the user has looked at it. */
  looks: Look[]
  /** The events of what its tasks changed outside of the computer, or may have; its window makes sense of them. */
  outside: Event[]
  /** The model (provider/model) that answers in the place of the run's own; '' if none does. */
  fallback: string
  /** Why it went to one Associate at once; '' if a Director planned it. */
  direct: string
  /** Model text as it arrives; dropped when the run reports. */
  stream: string
  /** Whether all events of the run have been seen, and not only its summary. */
  whole: boolean
  last: number
}

interface RunsState {
  runs: Record<string, RunView>
  reset(runs: RunSummary[]): void
  take(e: Event): void
  /**
   * Takes a run's whole history, which replaces what was put together from single events;
   * false when something newer has arrived since it was requested, so that the events
   * between have to be requested as well.
   */
  fill(run: string, events: Event[]): boolean
  tokens(run: string, text: string): void
}

export const useRuns = keptStore<RunsState>('runs', (set, get) => ({
  runs: {},
  reset: (list) =>
    set((s) => ({
      runs: Object.fromEntries(list.map((r) => [r.run, { ...blank(r.run, r.started), ...s.runs[r.run], ...r, whole: false }])),
    })),
  take: (e) =>
    set((s) => {
      const id = e.run
      if (!id) return s
      const before = s.runs[id]
      // A run that was seen from its very first event is whole.
      const view = before ?? { ...blank(id, e.time), whole: e.type === 'prompt.submitted' || e.type === 'run.started' }
      const after = reduce(view, e)
      return after === before ? s : { runs: { ...s.runs, [id]: after } }
    }),
  fill(run, events) {
    const old = get().runs[run]
    const from = { ...blank(run, old?.started ?? events[0]?.time ?? ''), prompt: old?.prompt ?? '', stream: old?.stream ?? '' }
    const filled = { ...events.reduce(reduce, from), whole: true }
    if (old && old.last > filled.last) return false
    set((s) => ({ runs: { ...s.runs, [run]: filled } }))
    return true
  },
  tokens: (run, text) =>
    set((s) => {
      const view = s.runs[run]
      if (!view || ended(view.status)) return s
      return { runs: { ...s.runs, [run]: { ...view, stream: (view.stream + text).slice(-8000) } } }
    }),
}))

const mostOutside = 1000
const mostSaid = 200
const mostApprovals = 200

export const noUsage: Usage = { wall_ms: 0, tool_calls: 0, tokens_in: 0, tokens_out: 0, cost_usd: 0 }

export function blank(run: string, started: string): RunView {
  return {
    run, started, prompt: '', status: 'queued', objective: '', plan: [], tasks: [], questions: [], provider: '', model: '',
    reason: '', error: '', paused: false, said: [], approvals: [], called: 0, continues: '', stood: 0, stoodWords: '', waits: [], looks: [], outside: [], fallback: '', direct: '', stream: '', whole: false, last: 0, usage: noUsage,
  }
}

export function ended(s: RunStatus): boolean {
  return s === 'done' || s === 'failed' || s === 'cancelled'
}

/** The outcome of a run for a person: never success without proof. */
export function outcome(r: { status: RunStatus; verified?: Verified }): Verified | 'open' {
  if (!ended(r.status)) return 'open'
  if (r.status !== 'done') return 'fail'
  return r.verified ?? 'unknown'
}

/** Whether a run ended there because a person wanted none of what it had made. */
export function discarded(r: RunView): boolean {
  return r.status === 'failed' && r.tasks.at(-1)?.result?.reviewed?.decision === 'discard'
}

/** Whether anything of a run is live, so that it can be undone. */
export function changed(r: RunView): boolean {
  return r.tasks.some((t) => t.result?.head && (t.kind === 'git' || (t.result.changes?.length ?? 0) > 0))
}

/** A run after one more of its events. An event that was already applied changes nothing. */
export function reduce(r: RunView, e: Event): RunView {
  if (e.sequence <= r.last) return r
  const next: RunView = { ...r, last: e.sequence }
  switch (e.type) {
    case 'prompt.submitted':
      return { ...next, prompt: dataOf(e, e.type)?.text ?? r.prompt, continues: dataOf(e, e.type)?.continues ?? '', started: e.time }
    case 'run.started': {
      const d = dataOf(e, e.type)
      return d ? { ...next, provider: d.provider, model: d.model, document: d.document, direct: d.direct ?? '', started: r.started || e.time } : next
    }
    case 'run.planned': {
      const d = dataOf(e, e.type)
      return d ? { ...next, objective: d.objective, plan: d.plan ?? [], stream: '' } : next
    }
    case 'run.moved': {
      const d = dataOf(e, e.type)
      // A report ends a run for good; a later change of its status lost the race against it
      // and is ignored.
      if (!d || ended(r.status)) return next
      return { ...next, status: d.status, reason: d.reason ?? '', waits: d.status === 'waiting' ? r.waits : [] }
    }
    case 'model.waiting': {
      const d = dataOf(e, e.type)
      if (!d || ended(r.status)) return next
      const task = e.task ?? ''
      return { ...next, waits: [...r.waits.filter((w) => w.task !== task), { ...d, task }] }
    }
    case 'model.resumed': {
      const d = dataOf(e, e.type)
      if (!d) return next
      const fallback = d.outcome !== 'answered' ? r.fallback : d.instead ? `${d.provider}/${d.model}` : ''
      return { ...next, waits: r.waits.filter((w) => w.task !== (e.task ?? '')), fallback }
    }
    case 'model.switched': {
      const [provider = '', ...model] = (dataOf(e, e.type)?.model ?? '').split('/')
      return { ...next, provider, model: model.join('/'), fallback: '' }
    }
    case 'run.stood': {
      const d = dataOf(e, e.type)
      if (!d) return next
      // Time that a box stood still is part of its task's time, which is counted already.
      return { ...next, stood: r.stood + (d.why === 'box' ? 0 : d.for_ms), stoodWords: stoodStill(d) }
    }
    case 'run.steered':
      return withSaid(next, { time: e.time, text: dataOf(e, e.type)?.text ?? '' })
    case 'run.commanded': {
      const command = dataOf(e, e.type)?.command
      return { ...next, paused: command === 'pause' || (r.paused && command !== 'resume') }
    }
    case 'question.asked': {
      const d = dataOf(e, e.type)
      return d ? { ...next, questions: [...r.questions, d.question] } : next
    }
    case 'question.answered': {
      const d = dataOf(e, e.type)
      const asked = r.questions.find((q) => q.id === d?.question)
      if (!d || asked?.answer !== undefined) return next // it was answered already
      return withSaid(
        { ...next, questions: r.questions.map((q) => (q === asked ? { ...q, answer: d.answer } : q)) },
        { time: e.time, text: d.answer, asked: asked?.text ?? 'A question', ...(d.default ? { byDefault: true } : {}) },
      )
    }
    case 'approval.requested': {
      const d = dataOf(e, e.type)
      if (!d || ended(r.status)) return next
      return { ...next, approvals: [...r.approvals, { approval: d.approval, act: d.act, task: e.task ?? '' }].slice(-mostApprovals) }
    }
    case 'approval.answered': {
      const d = dataOf(e, e.type)
      if (!d) return next
      return { ...next, approvals: r.approvals.map((a) => (a.approval === d.approval && !a.answer ? { ...a, answer: d.answer, ...(d.reason ? { reason: d.reason } : {}) } : a)) }
    }
    case 'review.requested': {
      const d = dataOf(e, e.type)
      if (!d || ended(r.status)) return next
      const task = e.task ?? ''
      return { ...next, looks: [...r.looks.filter((l) => l.task !== task), { task, review: d.review, paths: d.paths }] }
    }
    case 'review.answered':
      return { ...next, looks: r.looks.filter((l) => l.task !== e.task) }
    case 'effect.intended':
    case 'effect.ended':
    case 'effect.resolved':
      return { ...next, outside: [...r.outside, e].slice(-mostOutside) }
    case 'usage.metered': {
      const d = dataOf(e, e.type)
      return d ? { ...next, usage: add(r.usage ?? noUsage, d.usage) } : next
    }
    case 'run.reported': {
      const d = dataOf(e, e.type)
      if (!d || ended(r.status)) return next
      const { status, summary, verified, usage } = d
      return {
        ...next, status, summary, verified, usage, ended: e.time, error: d.error ?? '', stream: '', reason: '', waits: [], looks: [],
        ...(d.checkpoint ? { checkpoint: d.checkpoint } : {}),
        ...(d.document ? { document: d.document } : {}),
      }
    }
    case 'task.requested': {
      const t = dataOf(e, e.type)?.task
      if (!t) return next
      return withTask(next, t.id, (old) => ({ ...old, kind: t.kind, goal: t.goal, attempt: t.attempt, told: t }))
    }
    case 'task.started': {
      const d = dataOf(e, e.type)
      return withTask(next, e.task, (t) => (!d || d.attempt < t.attempt ? t : { ...t, status: 'working', attempt: d.attempt }))
    }
    case 'task.finished': {
      const result = dataOf(e, e.type)?.result
      if (!result) return next
      return withTask({ ...next, looks: r.looks.filter((l) => l.task !== result.task) }, result.task, (t) =>
        result.attempt < t.attempt ? t : { ...t, status: result.status, attempt: result.attempt, result, verification: result.verification })
    }
    case 'verification.finished': {
      const d = dataOf(e, e.type)
      return d ? withTask(next, e.task, (t) => ({ ...t, verification: d.verification })) : next
    }
    case 'tool.called': {
      const d = dataOf(e, e.type)
      return d ? withTask({ ...next, called: r.called + 1 }, e.task, (t) => ({ ...t, calls: [...t.calls, { call: d.call, attempt: d.attempt, name: d.name, args: d.args }].slice(-200) })) : next
    }
    case 'tool.returned': {
      const d = dataOf(e, e.type)
      if (!d) return next
      return withTask(next, e.task, (t) => ({
        ...t,
        // Another attempt may make a call of the same id: what is heard of one says nothing of the other.
        calls: t.calls.map((c) => (c.call === d.call && c.attempt === d.attempt ? { ...c, ok: d.ok, output: d.output, ms: d.duration_ms } : c)),
      }))
    }
  }
  return next
}

function withSaid(r: RunView, said: SaidView): RunView {
  return { ...r, said: [...r.said, said].slice(-mostSaid) }
}

function withTask(r: RunView, id: string | undefined, change: (t: TaskView) => TaskView): RunView {
  if (!id) return r
  const known = r.tasks.some((t) => t.task === id)
  const tasks = known ? r.tasks : [...r.tasks, { task: id, kind: '' as const, goal: '', attempt: 1, status: 'waiting' as const, calls: [] }]
  return { ...r, tasks: tasks.map((t) => (t.task === id ? change(t) : t)) }
}

function add(a: Usage, b: Usage): Usage {
  return {
    wall_ms: a.wall_ms + b.wall_ms,
    tool_calls: a.tool_calls + b.tool_calls,
    tokens_in: a.tokens_in + b.tokens_in,
    tokens_out: a.tokens_out + b.tokens_out,
    cost_usd: a.cost_usd + b.cost_usd,
  }
}
