import type { Event } from '../../contract/types'
import { HostError } from '../../link/protocol'
import { useRuns } from '../../stores/runs'

/**
 * Asks for a run's whole history, page by page, until the store has taken it. A
 * run at work says more while it is asked for: that is asked for as well, and
 * whoever waited for it to be silent would never see its beginning.
 */
export async function makeWhole(run: string, page: (after: number) => Promise<{ events: Event[]; more: boolean }>, stopped: () => boolean): Promise<void> {
  const events: Event[] = []
  for (;;) {
    const got = await page(events.at(-1)?.sequence ?? 0)
    if (stopped()) return
    events.push(...got.events)
    if (events.length === 0) throw new HostError('not_found', 'The log has no run with this id.')
    if (got.events.length === 0) return // what is newer is not told of it
    if (!got.more && useRuns.getState().fill(run, events)) return
  }
}
