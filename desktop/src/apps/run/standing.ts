import type { MarkKind } from '../../parts/Mark'
import { outcome, type RunView } from '../../stores/runs'

const statusWords: Record<string, string> = {
  queued: 'queued', planning: 'planning', working: 'working', waiting: 'waiting for you', done: 'done', failed: 'failed', cancelled: 'cancelled',
}

/** The mark and the word for a run's status; a run that is done without proof says so. */
export function standing(run: RunView): { kind: MarkKind; text: string } {
  const o = outcome(run)
  if (o === 'open') return run.paused ? { kind: 'open', text: 'paused' } : { kind: 'active', text: run.status === 'waiting' && run.waits.length > 0 ? 'waiting for the model' : (statusWords[run.status] ?? run.status) }
  if (run.status === 'cancelled') return { kind: 'unknown', text: 'cancelled' }
  if (run.status === 'failed') return { kind: 'fail', text: 'failed' }
  if (o === 'pass') return { kind: 'pass', text: 'done, verified' }
  return o === 'fail' ? { kind: 'fail', text: 'done, a check failed' } : { kind: 'unknown', text: 'done, not verified' }
}
