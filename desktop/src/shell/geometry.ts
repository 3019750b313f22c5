import type { Frame } from '../contract/types'

// Window geometry in CSS pixels, relative to the area that windows may use.

export interface Size {
  w: number
  h: number
}

export type Edge = 'n' | 's' | 'e' | 'w' | 'ne' | 'nw' | 'se' | 'sw'
export type Zone = 'left' | 'right' | 'top' | 'bottom' | 'top-left' | 'top-right' | 'bottom-left' | 'bottom-right' | 'full'

export const edges: Edge[] = ['n', 's', 'e', 'w', 'ne', 'nw', 'se', 'sw']
export const minimum: Size = { w: 280, h: 180 }
export const gap = 8
/** The area that windows opened on a phone get their frames for. */
export const larger: Size = { w: 1280, h: 700 }
const titleHeight = 40
const icons = 120 // the column of icons on the left
const reach = 96 // how much of a title bar must stay within reach

const clamp = (v: number, low: number, high: number) => Math.min(Math.max(v, low), Math.max(low, high))

/** Keeps a frame usable: not larger than the area, its title bar within reach. */
export function fit(f: Frame, area: Size, min: Size = minimum): Frame {
  const w = Math.round(clamp(f.w, Math.min(min.w, area.w), area.w))
  const h = Math.round(clamp(f.h, Math.min(min.h, area.h), area.h))
  return {
    x: Math.round(clamp(f.x, Math.min(reach, w) - w, area.w - Math.min(reach, w))),
    y: Math.round(clamp(f.y, 0, area.h - titleHeight)),
    w,
    h,
  }
}

/** Shows a frame that was placed on another screen whole, as far as it fits. */
export function inside(f: Frame, area: Size, min: Size = minimum): Frame {
  const { w, h } = fit(f, area, min)
  return { x: Math.round(clamp(f.x, 0, area.w - w)), y: Math.round(clamp(f.y, 0, area.h - h)), w, h }
}

/** Moves a frame by a distance. */
export function move(f: Frame, dx: number, dy: number, area: Size): Frame {
  return fit({ ...f, x: f.x + dx, y: f.y + dy }, area)
}

/** Drags one edge or corner; the opposite side stays where it is. */
export function resize(f: Frame, edge: Edge, dx: number, dy: number, area: Size, min: Size = minimum): Frame {
  let { x, y, w, h } = f
  const right = f.x + f.w
  const bottom = f.y + f.h
  const least = { w: Math.min(min.w, area.w), h: Math.min(min.h, area.h) }
  if (edge.includes('e')) w = clamp(f.w + dx, least.w, Math.max(least.w, area.w - f.x))
  if (edge.includes('s')) h = clamp(f.h + dy, least.h, Math.max(least.h, area.h - f.y))
  if (edge.includes('w')) {
    x = clamp(f.x + dx, Math.min(0, f.x), right - least.w)
    w = right - x
  }
  if (edge.includes('n')) {
    y = clamp(f.y + dy, 0, bottom - least.h)
    h = bottom - y
  }
  return { x: Math.round(x), y: Math.round(y), w: Math.round(w), h: Math.round(h) }
}

/** The zone that a window released at this point would snap to, or null. */
export function zoneAt(x: number, y: number, area: Size): Zone | null {
  const near = 14
  const corner = Math.min(140, area.h / 4)
  const left = x <= near
  const right = x >= area.w - near
  if (left || right) {
    const side = left ? 'left' : 'right'
    if (y <= corner) return `top-${side}`
    if (y >= area.h - corner) return `bottom-${side}`
    return side
  }
  return y <= near ? 'full' : null
}

/** The frame of a zone, with even gaps around and between. */
export function zoneFrame(zone: Zone, area: Size): Frame {
  const halfW = Math.floor((area.w - 3 * gap) / 2)
  const halfH = Math.floor((area.h - 3 * gap) / 2)
  const full = { x: gap, y: gap, w: area.w - 2 * gap, h: area.h - 2 * gap }
  const f = { ...full }
  if (zone.includes('left') || zone.includes('right')) f.w = halfW
  if (zone.includes('right')) f.x = area.w - gap - halfW
  if (zone.startsWith('top') || zone.startsWith('bottom')) f.h = halfH
  if (zone.startsWith('bottom')) f.y = area.h - gap - halfH
  return f
}

const steps: Record<string, Partial<Record<Zone | 'none', Zone>>> = {
  ArrowLeft: { none: 'left', right: 'left', 'top-right': 'top-left', 'bottom-right': 'bottom-left', top: 'top-left', bottom: 'bottom-left', full: 'left' },
  ArrowRight: { none: 'right', left: 'right', 'top-left': 'top-right', 'bottom-left': 'bottom-right', top: 'top-right', bottom: 'bottom-right', full: 'right' },
  ArrowUp: { none: 'full', left: 'top-left', right: 'top-right', 'bottom-left': 'left', 'bottom-right': 'right', bottom: 'full', top: 'full' },
  ArrowDown: { none: 'bottom', left: 'bottom-left', right: 'bottom-right', 'top-left': 'left', 'top-right': 'right', top: 'bottom', full: 'bottom' },
}

/** The zone that an arrow key moves a frame to, or null when there is none further. */
export function zoneStep(f: Frame, key: string, area: Size): Zone | null {
  return steps[key]?.[zoneOf(f, area) ?? 'none'] ?? null
}

/** The zone a frame fills exactly, or null. */
export function zoneOf(f: Frame, area: Size): Zone | null {
  const zones: Zone[] = ['left', 'right', 'top', 'bottom', 'top-left', 'top-right', 'bottom-left', 'bottom-right', 'full']
  return zones.find((z) => same(zoneFrame(z, area), f)) ?? null
}

/** Where the next window of a size is placed: a step below the last one, from the start again when it would leave the area. */
export function cascade(taken: Frame[], size: Size, area: Size): Frame {
  const step = 32
  const w = Math.min(size.w, area.w - 2 * gap)
  const h = Math.min(size.h, area.h - 2 * gap)
  const room = { x: Math.max(gap, area.w - w - gap), y: Math.max(gap, area.h - h - gap) }
  // Windows start to the right of the icons where there is room.
  const start = { x: Math.min(room.x, Math.max(icons, Math.round((area.w - w) / 2) - 2 * step)), y: Math.max(gap, Math.round((area.h - h) / 2.6) - step) }
  for (let n = 0; n < 64; n++) {
    const x = start.x + n * step
    const y = start.y + n * step
    const f = { x: x <= room.x ? x : gap + ((n * step) % Math.max(step, room.x)), y: y <= room.y ? y : gap + ((n * step) % Math.max(step, room.y)), w, h }
    if (!taken.some((t) => Math.abs(t.x - f.x) < step / 2 && Math.abs(t.y - f.y) < step / 2)) return fit(f, area)
  }
  return fit({ ...start, w, h }, area)
}

export function same(a: Frame, b: Frame): boolean {
  return a.x === b.x && a.y === b.y && a.w === b.w && a.h === b.h
}
