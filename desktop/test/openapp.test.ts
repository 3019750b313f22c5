import { beforeEach, describe, expect, it } from 'vitest'
import { loadApps } from '../src/apps/registry'
import { openApp, openThing } from '../src/shell/intents'
import { larger } from '../src/shell/geometry'
import { useScreen } from '../src/shell/screen'
import { front, useWindows } from '../src/stores/windows'

const app = (more = {}) => () => Promise.resolve({ default: { name: 'A', icon: () => null, entry: () => new Promise(() => {}), window: { w: 700, h: 500 }, ...more } })
const open = () => Object.values(useWindows.getState().windows)

beforeEach(async () => {
  useWindows.setState({ windows: {}, pending: {}, post: () => {} })
  useScreen.setState({ area: { w: 1280, h: 720 }, phone: false })
  await loadApps({ 'apps/trace/manifest.ts': app({ opens: ['trace'] }), 'apps/help/manifest.ts': app({ single: true }), 'apps/run/manifest.ts': app({ opens: ['run'] }) })
})

describe('opening an app', () => {
  it('raises the window that shows the same, with nothing given too', () => {
    const list = openApp('trace')
    const of = openApp('trace', { trace: 'r1' })
    expect(of).not.toBe(list)
    expect(openApp('trace')).toBe(list)
    expect(front(useWindows.getState().windows)?.window).toBe(list)
    expect(openApp('trace', { trace: 'r1' })).toBe(of)
    expect(open()).toHaveLength(2)
  })
  it('raises the front one of several', () => {
    const old = openApp('trace')!
    const { frame } = useWindows.getState().windows[old]!
    const later = useWindows.getState().open({ app: 'trace', title: 'A', frame, state: 'normal', props: {} })
    expect(openApp('trace')).toBe(later)
  })
  it('places a run beside what is read, and anything else like any app', () => {
    useScreen.setState({ area: { w: 1600, h: 720 }, phone: false })
    const read = useWindows.getState().open({ app: 'help', title: 'Help', frame: { x: 100, y: 30, w: 600, h: 500 }, state: 'normal' })
    openThing('run', 'r1', 'T')
    expect(front(useWindows.getState().windows)).toMatchObject({ app: 'run', frame: { x: 708, y: 30, w: 700, h: 500 } })
    useWindows.getState().place(read, { x: 100, y: 30, w: 600, h: 500 }, 'maximised')
    useWindows.getState().raise(read)
    openThing('run', 'r2', 'T')
    expect(front(useWindows.getState().windows)!.frame.w).toBe(434) // it covers little of a maximised one
    useWindows.getState().place(read, { x: 100, y: 30, w: 600, h: 500 }, 'normal')
    useWindows.getState().raise(read)
    openThing('trace', 'r1', 'T')
    expect(front(useWindows.getState().windows)!.frame).toMatchObject({ w: 700, h: 500 })
    expect(front(useWindows.getState().windows)!.frame.x).not.toBe(708)
  })
  it('on a phone gives it a frame for the screens that show one', () => {
    useScreen.setState({ area: { w: 390, h: 700 }, phone: true })
    openApp('trace')
    const { frame } = open()[0]!
    expect(frame).toMatchObject({ w: 700, h: 500 })
    expect(frame.x + frame.w).toBeLessThanOrEqual(larger.w)
  })
})
