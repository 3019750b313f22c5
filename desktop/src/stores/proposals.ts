import type { Event } from '../contract/types'
import { dataOf } from '../contract/types'
import type { Proposal } from '../link/protocol'
import { keptStore } from './kept'

interface ProposalsState {
  /** By document: its open proposals, newest first, as last requested. */
  open: Record<string, Proposal[]>
  /** By document: how often the last answer became out of date. */
  stale: Record<string, number>
  /** After events were missed: everything known has to be requested again. */
  reset(): void
  take(e: Event): void
  /** Stores an answer, unless something newer has happened since it was requested. */
  put(document: string, asked: number, list: Proposal[]): void
}

export const useProposals = keptStore<ProposalsState>('proposals', (set) => {
  const outdate = (s: ProposalsState, document: string) => ({ stale: { ...s.stale, [document]: (s.stale[document] ?? 0) + 1 } })
  return {
    open: {},
    stale: {},
    reset: () => set((s) => ({ stale: Object.fromEntries([...Object.keys(s.open), ...Object.keys(s.stale)].map((d) => [d, (s.stale[d] ?? 0) + 1])) })),
    take(e) {
      if (e.type === 'document.proposed') {
        // An event with a long text has no inline data; its subject names the document.
        const document = dataOf(e, e.type)?.document ?? e.subject?.replace(/^proposals\//, '')
        if (document) set((s) => outdate(s, document))
      }
      const done = dataOf(e, 'proposal.resolved')
      if (done) {
        set((s) => ({
          ...outdate(s, done.document),
          open: { ...s.open, [done.document]: (s.open[done.document] ?? []).filter((p) => p.id !== done.proposal) },
        }))
      }
      // A new revision changes what accepting a proposal would do.
      if (e.type === 'document.revised') {
        const document = dataOf(e, e.type)?.document ?? e.subject ?? ''
        set((s) => ((s.open[document]?.length ?? 0) > 0 ? outdate(s, document) : s))
      }
    },
    put: (document, asked, list) => set((s) => ((s.stale[document] ?? 0) === asked ? { open: { ...s.open, [document]: list } } : s)),
  }
})
