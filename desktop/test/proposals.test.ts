import { beforeEach, describe, expect, it } from 'vitest'
import type { Proposal } from '../src/link/protocol'
import { useProposals } from '../src/stores/proposals'
import { useRuns } from '../src/stores/runs'
import { useToasts } from '../src/stores/toasts'
import { event } from './fake'

const store = () => useProposals.getState()
const of = (id: string): Proposal => ({ id, document: 'd', base: 1, author: 'associate', role: 'associate', time: '2026-03-14T09:12:00Z', sequence: 1, sha256: 's', status: 'open' })
const body = { author: 'associate', base: 1, sha256: 's', body: 'b' }

describe('proposals', () => {
  beforeEach(() => useProposals.setState({ open: {}, stale: {} }))

  it('are asked for again when one comes, goes, or the document moves under one', () => {
    const asked = () => store().stale['d'] ?? 0
    store().take(event(1, 'document.revised', { document: 'd' }))
    expect(asked()).toBe(0) // no proposal waits
    store().take(event(2, 'document.proposed', { proposal: 'p', document: 'd', ...body }))
    expect(asked()).toBe(1)
    store().put('d', 1, [of('p'), of('q')])
    store().take(event(3, 'document.revised', { document: 'd' }))
    expect(asked()).toBe(2)
    expect(store().open['d']).toHaveLength(2) // they are shown until the answer comes
    store().take(event(4, 'proposal.resolved', { proposal: 'p', document: 'd', resolution: 'dismissed', by: 'ana' }))
    expect(store().open['d']!.map((p) => p.id)).toEqual(['q'])
    expect(asked()).toBe(3)
    store().reset()
    expect(asked()).toBe(4)
  })

  it('are not taken from an answer that is out of date', () => {
    store().take(event(1, 'document.proposed', { proposal: 'p', document: 'd', ...body }))
    store().put('d', 0, [])
    expect(store().open['d']).toBeUndefined()
    store().put('d', 1, [of('p')])
    expect(store().open['d']).toHaveLength(1)
  })

  it('of a long text are known by their subject', () => {
    store().take({ ...event(1, 'document.proposed'), data: undefined, subject: 'proposals/d' })
    expect(store().stale['d']).toBe(1)
  })

  it('are told with the run whose document they would change', () => {
    useRuns.getState().take(event(1, 'run.started', { document: 'd', provider: 'p', model: 'm' }, { run: 'theirs' }))
    useToasts.getState().take(event(2, 'document.proposed', { proposal: 'p', document: 'd', ...body }, { run: 'its' }))
    expect(useToasts.getState().toasts.at(-1)).toMatchObject({ title: 'The Associate proposes a change', run: 'theirs' })
  })
})
