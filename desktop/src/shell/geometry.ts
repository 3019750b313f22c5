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

/** The share of a frame, 0 to 1, that none of those above it covers. */
export function uncovered(f: Frame, above: Frame[]): number {
  const rest = above.reduce((parts, a) => parts.flatMap((p) => without(p, a)), [f])
  return rest.reduce((sum, p) => sum + p.w * p.h, 0) / (f.w * f.h)
}

/** What is left of a frame beside another one, in up to four pieces. */
function without(f: Frame, a: Frame): Frame[] {
  const top = Math.max(f.y, a.y)
  const bottom = Math.min(f.y + f.h, a.y + a.h)
  if (top >= bottom || a.x >= f.x + f.w || a.x + a.w <= f.x) return [f]
  return [
    { x: f.x, y: f.y, w: f.w, h: top - f.y },
    { x: f.x, y: bottom, w: f.w, h: f.y + f.h - bottom },
    { x: f.x, y: top, w: a.x - f.x, h: bottom - top },
    { x: a.x + a.w, y: top, w: f.x + f.w - a.x - a.w, h: bottom - top },
  ].filter((p) => p.w > 0 && p.h > 0)
}

/** How narrow a window may become, of its own width, to cover less of the one that it stands beside. */
const narrowest = 0.62

/**
 * Where a window of a size is placed beside the one that is read: at its side with more room, as high up, and narrower if need be. Where
 * neither side has room it covers as little as its narrowest width allows. Never exactly over another window.
 */
export function beside(read: Frame, taken: Frame[], size: Size, area: Size): Frame {
  const left = read.x - 2 * gap
  const right = area.w - read.x - read.w - 2 * gap
  const onRight = right >= Math.min(size.w, left)
  const w = Math.min(size.w, area.w - 2 * gap, Math.max(onRight ? right : left, Math.round(size.w * narrowest)))
  const h = Math.min(size.h, area.h - 2 * gap)
  const x = onRight ? Math.min(read.x + read.w + gap, area.w - gap - w) : Math.max(gap, read.x - gap - w)
  return freed({ x, y: clamp(read.y, gap, area.h - h - gap), w, h }, taken, area)
}

/** A frame moved down by as many steps as keep it off the title bars of others that begin where it does. */
function freed(f: Frame, taken: Frame[], area: Size): Frame {
  const step = 32
  const at = (y: number) => ({ ...f, y, h: Math.min(f.h, area.h - y - gap) })
  for (let y = f.y; area.h - y - gap >= minimum.h; y += step) if (!taken.some((t) => Math.abs(t.x - f.x) < step / 2 && Math.abs(t.y - y) < step / 2)) return at(y)
  return f
}

export function same(a: Frame, b: Frame): boolean {
  return a.x === b.x && a.y === b.y && a.w === b.w && a.h === b.h
}
