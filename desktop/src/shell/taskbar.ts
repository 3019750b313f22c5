import type { App } from '../apps/registry'
import { byOrder } from '../apps/registry'
import type { WindowRecord } from '../link/protocol'

// How the bar's row of windows uses its room, in CSS pixels. Nothing here knows which window is in front, so that raising one moves none.

const gap = 4
const icon = 24 // an app's icon, beside the titles of its windows
const title = 96 // a title that can still be read
const name = 132 // an app's name with the number of its windows
const small = 52 // an app's icon with that number
const more = 56 // the button that lists what has no room

/** The windows of one app, in the order in which they were opened. */
export interface Group {
  app: string
  windows: WindowRecord[]
}

/** A group in the row: each window by its title, one button with the app's name, or one with its icon alone. */
export interface Place {
  group: Group
  look: 'titles' | 'name' | 'icon'
  /** The least that it needs. */
  width: number
}

/** The open windows by app, in the order of the apps' icons: closing or opening one never changes the order of the others. */
export function grouped(windows: Record<string, WindowRecord>, apps: Record<string, App>): Group[] {
  const groups: Record<string, Group> = {}
  for (const w of Object.values(windows).sort((a, b) => (a.window < b.window ? -1 : 1))) (groups[w.app] ??= { app: w.app, windows: [] }).windows.push(w)
  const known = ({ app }: Group) => apps[app] ?? { id: app, name: app }
  return Object.values(groups).sort((a, b) => byOrder(known(a), known(b)))
}

function place(group: Group, look: Place['look']): Place {
  const n = group.windows.length
  return { group, look, width: look === 'titles' ? icon + n * title + (n - 1) * gap : look === 'name' ? name : small }
}

const needs = (places: Place[]) => places.reduce((sum, p) => sum + p.width + gap, 0) - gap

/**
 * Which groups the row has room for and how each looks. Where not every title fits, the apps with the most windows become one button
 * first, then apps from the end show their icons alone, and what still has no room is left to the list.
 */
export function arrange(groups: Group[], room: number): { shown: Place[]; hidden: Group[] } {
  const shown = groups.map((g) => place(g, 'titles'))
  while (needs(shown) > room) {
    const most = shown.reduce((best, p, i) => (p.look === 'titles' && p.group.windows.length > 1 && p.group.windows.length >= (shown[best]?.group.windows.length ?? 0) ? i : best), -1)
    if (most < 0) break
    shown[most] = place(shown[most]!.group, 'name')
  }
  for (let i = shown.length - 1; i >= 0 && needs(shown) > room; i--) shown[i] = place(shown[i]!.group, 'icon')
  const hidden: Group[] = []
  while (shown.length > 0 && needs(shown) + (hidden.length > 0 ? gap + more : 0) > room) hidden.unshift(shown.pop()!.group)
  return { shown, hidden }
}
