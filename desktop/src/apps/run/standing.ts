import type { PlanItem } from '../../contract/types'
import type { MarkKind } from '../../parts/Mark'
import { discarded, ended, outcome, type RunView, type TaskView } from '../../stores/runs'

const statusWords: Record<string, string> = {
  queued: 'queued', planning: 'planning', working: 'working', waiting: 'waiting for you', done: 'done', failed: 'failed', cancelled: 'cancelled',
}

/** The mark and the word for a run's status; a run that is done without proof says so. */
export function standing(run: RunView): { kind: MarkKind; text: string } {
  const o = outcome(run)
  if (o === 'open') {
    if (run.paused) return { kind: 'paused', text: 'paused' }
    if (run.status === 'waiting') return { kind: 'waiting', text: run.waits.length > 0 ? 'waiting for the model' : 'waiting for you' }
    return { kind: run.status === 'queued' ? 'waiting' : 'active', text: statusWords[run.status] ?? run.status }
  }
  if (discarded(run)) return { kind: 'dropped', text: 'discarded by you' }
  if (run.status === 'cancelled') return { kind: 'unknown', text: 'cancelled' }
  if (run.status === 'failed') return { kind: 'fail', text: 'failed' }
  if (o === 'pass') return { kind: 'pass', text: 'done, verified' }
  return o === 'fail' ? { kind: 'fail', text: 'done, a check failed' } : { kind: 'unknown', text: 'done, not verified' }
}

/** The mark of a task. Nothing turns in a run that has ended, stands still or waits for somebody. */
export function taskStands(run: RunView, t: TaskView): MarkKind {
  if (t.status === 'waiting' || t.status === 'working') {
    if (ended(run.status)) return 'unknown'
    if (waitsFor(run, t.task)) return 'waiting'
    if (t.status === 'waiting') return 'open'
    return run.paused ? 'paused' : 'active'
  }
  if (t.result?.reviewed?.decision === 'discard') return 'dropped'
  if (t.status === 'needs_input' || t.status === 'cancelled') return 'unknown'
  if (t.status !== 'ok') return 'fail'
  // Success without a check that passed is shown as unknown, not as proven.
  return t.verification?.status ?? 'unknown'
}

/** The mark of a call of a task: what a call did proves nothing, so that its end is no ✓ of a verification. */
export function callStands(run: RunView, task: string, ok: boolean | undefined): MarkKind {
  if (ok !== undefined) return ok ? 'did' : 'fail'
  if (ended(run.status)) return 'unknown'
  return waitsFor(run, task) ? 'waiting' : run.paused ? 'paused' : 'active'
}

const planMark = { open: 'open', failed: 'fail', dropped: 'dropped' } as const

/** The mark of a step of the plan: ✓ only when its task was verified, ? when that is unknown. */
export function planStands(run: RunView, { status, task }: PlanItem): MarkKind {
  if (status === 'active') {
    if (ended(run.status)) return 'unknown'
    return run.status === 'waiting' ? 'waiting' : run.paused ? 'paused' : 'active'
  }
  if (status !== 'done') return planMark[status]
  const proof = run.tasks.find((t) => t.task === task)?.verification
  return !task || !proof ? 'pass' : proof.profile !== 'none' ? proof.status : 'unknown'
}

/** Whether a task waits for a person, or for its model. */
function waitsFor(run: RunView, task: string): boolean {
  return run.waits.some((w) => w.task === task) || run.looks.some((l) => l.task === task) || run.approvals.some((a) => a.task === task && !a.answer)
}
