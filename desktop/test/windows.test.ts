import { beforeEach, describe, expect, it } from 'vitest'
import { front, stacked, useWindows, labelled } from '../src/stores/windows'
import { event } from './fake'

const frame = { x: 10, y: 10, w: 400, h: 300 }
let posted: { type: string; id: string; data: unknown }[] = []
let sequence = 0

const s = () => useWindows.getState()
const take = (type: string, data: unknown, id = `x-${sequence}`) => s().take(event(++sequence, type, data, { id }))
const open = (app = 'a') => s().open({ app, title: app, frame, state: 'normal' })
/** The log returns everything that was posted. */
const echo = () => posted.splice(0).forEach((p) => take(p.type, p.data, p.id))

beforeEach(() => {
  posted = []
  useWindows.setState({ windows: {}, pending: {}, post: (type, data, id) => posted.push({ type, data, id }) })
})

describe('windows', () => {
  it('open in front, and the log keeps them', () => {
    const a = open()
    const b = open('b')
    expect(front(s().windows)?.window).toBe(b)
    expect(posted.map((p) => p.type)).toEqual(['window.opened', 'window.opened'])
    echo()
    expect(Object.keys(s().windows)).toEqual([a, b])
    expect(s().pending).toEqual({})
  })

  it('raise once, and only when something is above', () => {
    const a = open()
    open('b')
    posted = []
    s().raise(a)
    s().raise(a)
    expect(posted.map((p) => p.type)).toEqual(['window.focused'])
    expect(stacked(s().windows).at(-1)?.window).toBe(a)
  })

  it('come back from minimised where they were', () => {
    const a = open()
    s().place(a, frame, 'minimised')
    expect(front(s().windows)).toBeUndefined()
    s().raise(a)
    expect(s().windows[a]).toMatchObject({ state: 'normal', frame })
  })

  it('do not jump back when an older move of another browser arrives late', () => {
    const a = open()
    echo()
    const mine = { ...frame, x: 500 }
    s().place(a, mine)
    take('window.moved', { window: a, frame: { ...frame, x: 1 }, state: 'normal', z: 1 })
    expect(s().windows[a]?.frame).toEqual(mine)
    echo()
    expect(s().windows[a]?.frame).toEqual(mine)
    take('window.moved', { window: a, frame: { ...frame, x: 7 }, state: 'normal', z: 1 })
    expect(s().windows[a]?.frame.x).toBe(7)
  })

  it('follow another browser', () => {
    take('window.opened', { window: 'w', app: 'events', title: 'Events', frame, state: 'normal' })
    take('window.moved', { window: 'w', frame, state: 'maximised', z: 4 })
    expect(s().windows.w).toMatchObject({ app: 'events', state: 'maximised', z: 4 })
    take('window.closed', { window: 'w' })
    expect(s().windows).toEqual({})
    take('window.moved', { window: 'w', frame, state: 'normal', z: 9 })
    expect(s().windows).toEqual({})
  })

  it('keep what is not written yet over a snapshot', () => {
    const a = open()
    s().reset([{ window: 'old', app: 'x', title: 'x', frame, state: 'normal', z: 1 }])
    expect(Object.keys(s().windows).sort()).toEqual([a, 'old'].sort())
    s().close(a)
    s().reset([{ window: a, app: 'a', title: 'a', frame, state: 'normal', z: 1 }])
    expect(Object.keys(s().windows)).toEqual([])
  })
})

describe('windows of one title', () => {
  it('are told apart by a number, the same one as long as they are open', () => {
    const w = (window: string, title: string) => ({ window, title, app: 'a', frame: { x: 0, y: 0, w: 1, h: 1 }, state: 'normal' as const, z: 1 })
    expect(labelled({ b: w('b', 'Events'), a: w('a', 'Events'), c: w('c', 'Help') })).toEqual({ a: 'Events', b: 'Events (2)', c: 'Help' })
  })
})
