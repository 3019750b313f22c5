import { afterEach, describe, expect, it, vi } from 'vitest'
import { Link, type Listener, type LinkState } from '../src/link/link'
import type { Action, Queued, Shelf } from '../src/link/outbox'
import { HostError } from '../src/link/protocol'
import { FakeHost, session } from './fake'

const move = { window: 'w', frame: { x: 0, y: 0, w: 1, h: 1 }, state: 'normal' as const, z: 1 }
const links: Link[] = []

afterEach(async () => {
  await Promise.all(links.splice(0).map((l) => l.close()))
})

function start(host: FakeHost, shelf: Shelf = memoryShelf(), ask = () => Promise.resolve(session(host.log.length))) {
  const seen: number[] = []
  const states: LinkState[] = []
  const told = { waiting: 0, refused: [] as string[], words: [] as string[] }
  const listener: Listener = {
    state: (s) => states.push(s), session: () => {}, snapshot: () => {}, event: (e) => seen.push(e.sequence), tokens: (run, text) => told.words.push(`${run} ${text}`),
    waiting: (items) => (told.waiting = items.length), refused: (_a, e) => told.refused.push(e.code),
  }
  const link = new Link({ connect: host.connect, session: ask, shelf: () => Promise.resolve(shelf), backoff: () => 1 }, listener)
  links.push(link)
  link.start()
  const online = () => vi.waitFor(() => expect(states.at(-1)).toBe('online'))
  return { link, seen, states, told, online }
}

function memoryShelf(actions: Action[] = []): Shelf & { kept: Queued[] } {
  const kept: Queued[] = actions.map((action) => ({ action, tries: 0, stuck: '' }))
  const without = (id: string) => void kept.splice(0, kept.length, ...kept.filter((q) => q.action.id !== id))
  return { kept, load: () => [...kept], put: (q) => void (without(q.action.id), kept.push(q)), drop: without }
}

describe('the link', () => {
  it('starts from the snapshot and applies what follows', async () => {
    const host = new FakeHost()
    host.append()
    const { seen, online } = start(host)
    await online()
    host.deliver(host.append())
    expect(seen).toEqual([2])
    expect(host.snapshots).toBe(1)
  })

  it('fills a gap from the log, in order, each event once', async () => {
    const host = new FakeHost()
    const { seen, online } = start(host)
    await online()
    host.append()
    host.append()
    const third = host.append()
    host.deliver(third) // 1 and 2 were lost
    host.deliver(third)
    await vi.waitFor(() => expect(seen).toEqual([1, 2, 3]))
    host.deliver(host.append())
    expect(seen).toEqual([1, 2, 3, 4])
  })

  it('hears the words of runs that it follows, also on its next connection', async () => {
    const host = new FakeHost()
    const { link, told, online } = start(host)
    link.follow('r0') // before there is a connection
    await online()
    link.follow('r1')
    host.stream('tokens.r1', { text: 'think' })
    host.stream('tokens.r1', { text: 7 })
    host.stream('other.r1', { text: 'no' })
    expect(told.words).toEqual(['r1 think'])
    await vi.waitFor(() => expect(host.followed).toEqual(['r0', 'r1']))
    host.drop()
    await vi.waitFor(() => expect(host.followed).toEqual(['r0', 'r1', 'r0', 'r1']))
    for (let i = 0; i < 20; i++) link.follow(`s${i}`)
    host.drop()
    await vi.waitFor(() => expect(host.followed.slice(-16)).toEqual(Array.from({ length: 16 }, (_, i) => `s${i + 4}`)))
  })

  it('notices a lost last event by the tick', async () => {
    const host = new FakeHost()
    const { seen, online } = start(host)
    await online()
    host.append()
    host.push('tick', { sequence: 1 })
    await vi.waitFor(() => expect(seen).toEqual([1]))
  })

  it('catches up after a lost connection without a new snapshot', async () => {
    const host = new FakeHost()
    const { seen, states, online } = start(host)
    await online()
    host.deliver(host.append())
    host.drop()
    host.append()
    host.append()
    await vi.waitFor(() => expect(seen).toEqual([1, 2, 3]))
    await online()
    expect(states).toContain('offline')
    expect(host.snapshots).toBe(1)
    expect(host.connections).toBe(2)
  })

  it('takes a new snapshot when it is too far behind', async () => {
    const host = new FakeHost()
    const { seen, online } = start(host)
    await online()
    host.drop()
    for (let i = 0; i < 2500; i++) host.append()
    await vi.waitFor(() => expect(host.snapshots).toBe(2))
    await online()
    host.deliver(host.append())
    expect(seen).toEqual([2501])
  })

  it('survives garbage on its subjects', async () => {
    const host = new FakeHost()
    const { seen, online } = start(host)
    await online()
    host.push('user.x', 'not an event')
    host.push('user.x', { sequence: 'one' })
    host.push('tick', {})
    host.push('user.x', null)
    host.deliver(host.append())
    expect(seen).toEqual([1])
  })

  it('keeps writes while offline and sends them in order, once, with the same ids', async () => {
    const host = new FakeHost()
    const { link, told, online } = start(host)
    await online()
    host.refuseConnections = true
    host.drop()
    const writes = [1, 2, 3].map((z) => link.act('window.moved', { ...move, z }))
    expect(told.waiting).toBe(3)
    host.refuseConnections = false
    expect(await Promise.all(writes)).toEqual([{ sequence: 1 }, { sequence: 2 }, { sequence: 3 }])
    expect(host.actions.map((a) => (a.data as { z: number }).z)).toEqual([1, 2, 3])
    expect(told.waiting).toBe(0)
  })

  it('sends again with the same id when the answer was lost', async () => {
    const host = new FakeHost()
    const ids: string[] = []
    host.onAction = (a) => {
      ids.push(a.id)
      if (ids.length === 1) throw new HostError('timeout', 'lost')
      return { sequence: 7 }
    }
    const { link, online } = start(host)
    await online()
    expect(await link.act('window.moved', move)).toEqual({ sequence: 7 })
    expect(ids[1]).toBe(ids[0])
  })

  it('drops what the log refuses, says so, and goes on', async () => {
    const host = new FakeHost()
    const { link, told, online } = start(host)
    await online()
    host.onAction = () => {
      throw new HostError('invalid', 'no such window')
    }
    await expect(link.act('window.moved', move)).rejects.toMatchObject({ code: 'invalid' })
    host.onAction = null
    await link.act('window.moved', move)
    expect(told.refused).toEqual(['invalid'])
    expect(told.waiting).toBe(0)
  })

  it('sends what a reload left behind', async () => {
    const host = new FakeHost()
    const shelf = memoryShelf([{ type: 'window.moved', id: 'left', data: move }])
    const { online } = start(host, shelf)
    await online()
    await vi.waitFor(() => expect(host.actions.map((a) => a.id)).toEqual(['left']))
    await vi.waitFor(() => expect(shelf.kept).toEqual([]))
  })

  it('stops when the session has ended', async () => {
    const host = new FakeHost()
    let asked = 0
    const { states } = start(host, memoryShelf(), () => {
      asked++
      return Promise.reject(new HostError('denied', 'over'))
    })
    await vi.waitFor(() => expect(states.at(-1)).toBe('ended'))
    expect(asked).toBe(1)
    expect(host.connections).toBe(0)
  })
})
