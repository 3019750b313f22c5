import { dataOf, type Event } from '../../contract/types'
import type { Part, UnderWay } from '../../link/protocol'
import { clock } from '../../text/format'

// What the computer says of its own health, in words for a person.

const states: Record<string, string> = { running: 'runs', restarting: 'failed, is started again', waiting: 'waits', failed: 'failed too often and is given up' }

export function partWords(p: Part): string {
  const since = p.since ? ` since ${clock(p.since)}` : ''
  return `${states[p.state] ?? p.state}${since}`
}

const waits: Record<string, string> = { person: 'waits for you', model: 'waits for the model', slot: 'waits for its turn' }

export function underWayWords(r: UnderWay): string {
  const since = r.since ? ` since ${clock(r.since)}` : ''
  return `${r.for ? (waits[r.for] ?? `waits for ${r.for}`) : r.status}${since}`
}

/** Whether an event may change what the computer says of its health. */
export function concerns(e: Event): boolean {
  return /^(service|run|question|approval|review|desktop)\./.test(e.type) || e.type === 'prompt.submitted' || e.type === 'model.waiting' || e.type === 'model.resumed'
}

/** What became of a part, as a sentence; '' for events of other things. */
export function whatHappened(e: Event): string {
  const failed = dataOf(e, 'service.failed')
  if (failed) return `${failed.service} failed: ${failed.error}${failed.again ? ' It is started again.' : ''}`
  const restarted = dataOf(e, 'service.restarted')
  if (restarted) return `${restarted.service} runs again, after ${restarted.failures} ${restarted.failures === 1 ? 'failure' : 'failures'}.`
  const gone = dataOf(e, 'service.gave_up')
  if (gone) return `${gone.service} failed ${gone.failures} times and is given up: ${gone.error}${gone.sleeps ? ' The computer is put to sleep.' : ''}`
  return ''
}
