import { describe, expect, it } from 'vitest'
import type { App } from '../src/apps/registry'
import type { WindowRecord } from '../src/link/protocol'
import { arrange, grouped } from '../src/shell/taskbar'

const frame = { x: 0, y: 0, w: 400, h: 300 }
const win = (window: string, app: string, z = 1): WindowRecord => ({ window, app, title: window, frame, state: 'normal', z, props: {} })
const all = (...list: WindowRecord[]) => Object.fromEntries(list.map((w) => [w.window, w]))
const app = (id: string, name: string, order?: number) => ({ id, name, ...(order === undefined ? {} : { order }) }) as App
const apps = { files: app('files', 'Files', 20), events: app('events', 'Events', 40), run: app('run', 'Run'), command: app('command', 'Command') }
const names = (windows: Record<string, WindowRecord>) => grouped(windows, apps).map((g) => `${g.app}: ${g.windows.map((w) => w.window).join(' ')}`)

// Windows by how many each of some apps has.
const titled = 'A title that is long enough'
const groups = (...counts: number[]) => grouped(all(...counts.flatMap((n, a) => Array.from({ length: n }, (_, i) => ({ ...win(`${a}-${i}`, `app${a}`), title: titled })))), {})
const named = { labels: {}, apps: {} }
const looks = (counts: number[], room: number) => {
  const { shown, hidden } = arrange(groups(...counts), room, named)
  return [...shown.map((p) => p.look), ...hidden.map(() => 'hidden')].join(' ')
}

describe('windows by app', () => {
  it('stand together, in the order of the apps and then of their opening', () => {
    expect(names(all(win('1', 'run'), win('2', 'events'), win('3', 'run'), win('4', 'files'), win('5', 'clock')))).toEqual(['files: 4', 'events: 2', 'clock: 5', 'run: 1 3'])
  })
  it('stay where they are, whichever is in front, minimised or closed', () => {
    const windows = all(win('1', 'run'), win('2', 'command'), win('3', 'run'), win('4', 'command'))
    const before = names(windows)
    expect(before).toEqual(['command: 2 4', 'run: 1 3'])
    expect(names({ ...windows, 3: { ...win('3', 'run', 9), state: 'minimised' } })).toEqual(before)
    const { 1: _, ...without } = windows
    expect(names(without)).toEqual(['command: 2 4', 'run: 3'])
  })
})

describe('the row of windows', () => {
  it('has room for what it shows, whatever its width, and loses none', () => {
    for (let room = 60; room < 1200; room += 13) {
      for (const counts of [[], [1], [4], [1, 1, 1], [1, 7, 2], [30], [3, 3, 3, 3, 3, 3, 3, 3, 3, 3], Array.from({ length: 30 }, () => 1)]) {
        const { shown, hidden } = arrange(groups(...counts), room, named)
        const needs = shown.reduce((sum, p) => sum + p.width + 4, -4) + (hidden.length > 0 ? 60 : 0)
        expect(needs, `${counts.join()} in ${room} px`).toBeLessThanOrEqual(room)
        expect([...shown.map((p) => p.group), ...hidden]).toEqual(groups(...counts))
      }
    }
  })
  it('shows titles while they can be read', () => {
    expect(looks([1, 1, 2], 600)).toBe('titles titles titles')
    // A short one takes no more than it needs.
    const short = (title: string) => arrange(grouped(all({ ...win('1', 'files'), title }), {}), 90, named).shown.map((p) => p.look)
    expect([short('Files'), short(titled)]).toEqual([['titles'], ['icon']])
  })
  it('makes one button of the app with the most windows first', () => {
    expect(looks([2, 3, 1], 600)).toBe('titles name titles')
    expect(looks([2, 3, 1], 400)).toBe('name name titles')
  })
  it('then shows icons alone, from the end, and lists what is left', () => {
    expect(looks([2, 3, 1], 330)).toBe('name name icon')
    expect(looks([2, 3, 1], 184)).toBe('icon icon icon')
    expect(looks([2, 3, 1], 183)).toBe('icon hidden hidden')
  })
})
