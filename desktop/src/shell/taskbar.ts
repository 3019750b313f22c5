import type { App } from '../apps/registry'
import { byOrder } from '../apps/registry'
import type { WindowRecord } from '../link/protocol'

// How the bar's row of windows uses its room, in CSS pixels. Nothing here knows which window is in front, so that raising one moves none.

const gap = 4
const icon = 24 // an app's icon, beside the titles of its windows
const edge = 22 // the room beside the words of a button
const letter = 7.8 // what one takes, about
const readable = 74 // as much of a title as one is told by
const number = 28 // how many windows an app has
const small = 40 // an app's icon alone
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

const words = (text: string) => edge + Math.min(readable, Math.ceil(text.length * letter))

const needs = (places: Place[]) => places.reduce((sum, p) => sum + p.width + gap, 0) - gap

/**
 * Which groups the row has room for and how each looks. Where not every title fits, the apps with the most windows become one button
 * first, then apps from the end show their icons alone, and what still has no room is left to the list.
 */
export function arrange(groups: Group[], room: number, named: { labels: Record<string, string>; apps: Record<string, { name: string }> }): { shown: Place[]; hidden: Group[] } {
  const place = (group: Group, look: Place['look']): Place => {
    const many = group.windows.length > 1
    const titles = group.windows.reduce((sum, w) => sum + words(named.labels[w.window] ?? w.title) + gap, -gap)
    const width = look === 'titles' ? icon + titles : look === 'name' ? icon + words(named.apps[group.app]?.name ?? group.app) + number : small + (many ? number : 0)
    return { group, look, width }
  }
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
