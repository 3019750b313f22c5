import type { Event } from '../../contract/types'
import { HostError } from '../../link/protocol'
import { useRuns } from '../../stores/runs'

/**
 * Requests a run's whole history, page by page, until the store has accepted it. A running
 * run appends more in the meantime, and that is requested as well: if this waited until the
 * run is silent, its beginning would not be shown while it runs.
 */
export async function makeWhole(run: string, page: (after: number) => Promise<{ events: Event[]; more: boolean }>, stopped: () => boolean): Promise<void> {
  const events: Event[] = []
  for (;;) {
    const got = await page(events.at(-1)?.sequence ?? 0)
    if (stopped()) return
    events.push(...got.events)
    if (events.length === 0) throw new HostError('not_found', 'The log has no run with this id.')
    if (got.events.length === 0) return // the host does not return events that are newer than its answer
    if (!got.more && useRuns.getState().fill(run, events)) return
  }
}
