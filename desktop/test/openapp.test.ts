import { beforeEach, describe, expect, it } from 'vitest'
import { loadApps } from '../src/apps/registry'
import { openApp } from '../src/shell/intents'
import { larger } from '../src/shell/geometry'
import { useScreen } from '../src/shell/screen'
import { front, useWindows } from '../src/stores/windows'

const app = (more = {}) => () => Promise.resolve({ default: { name: 'A', icon: () => null, entry: () => new Promise(() => {}), window: { w: 700, h: 500 }, ...more } })
const open = () => Object.values(useWindows.getState().windows)

beforeEach(async () => {
  useWindows.setState({ windows: {}, pending: {}, post: () => {} })
  useScreen.setState({ area: { w: 1280, h: 720 }, phone: false })
  await loadApps({ 'apps/trace/manifest.ts': app(), 'apps/help/manifest.ts': app({ single: true }) })
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
  it('on a phone gives it a frame for the screens that show one', () => {
    useScreen.setState({ area: { w: 390, h: 700 }, phone: true })
    openApp('trace')
    const { frame } = open()[0]!
    expect(frame).toMatchObject({ w: 700, h: 500 })
    expect(frame.x + frame.w).toBeLessThanOrEqual(larger.w)
  })
})
