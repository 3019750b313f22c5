import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { Frame } from '../src/contract/types'
import { beside, cascade, edges, fit, inside, minimum, move, resize, same, uncovered, zoneAt, zoneFrame, zoneOf, zoneStep, type Zone } from '../src/shell/geometry'

const area = fc.record({ w: fc.integer({ min: 320, max: 4000 }), h: fc.integer({ min: 300, max: 2500 }) })
const any = fc.integer({ min: -20000, max: 20000 })
const frame: fc.Arbitrary<Frame> = fc.record({ x: any, y: any, w: fc.integer({ min: 1, max: 20000 }), h: fc.integer({ min: 1, max: 20000 }) })
const zones: Zone[] = ['left', 'right', 'top', 'bottom', 'top-left', 'top-right', 'bottom-left', 'bottom-right', 'full']

describe('window geometry', () => {
  it('keeps every window usable wherever it was left', () => {
    fc.assert(
      fc.property(frame, area, (f, a) => {
        const g = fit(f, a)
        expect(g.w).toBeGreaterThanOrEqual(Math.min(minimum.w, a.w))
        expect(g.w).toBeLessThanOrEqual(a.w)
        expect(g.h).toBeLessThanOrEqual(a.h)
        // The title bar must be within reach: not above, not below, not beyond a side.
        expect(g.y).toBeGreaterThanOrEqual(0)
        expect(g.y).toBeLessThanOrEqual(a.h - 40)
        expect(g.x + g.w).toBeGreaterThanOrEqual(90)
        expect(g.x).toBeLessThanOrEqual(a.w - 90)
        expect(fit(g, a)).toEqual(g)
      }),
    )
  })

  it('moving there and back changes nothing while there is room', () => {
    fc.assert(
      fc.property(fc.integer({ min: -50, max: 50 }), fc.integer({ min: -50, max: 50 }), (dx, dy) => {
        const a = { w: 1440, h: 800 }
        const f = { x: 400, y: 200, w: 600, h: 400 }
        expect(move(move(f, dx, dy, a), -dx, -dy, a)).toEqual(f)
      }),
    )
  })

  it('resizing leaves the opposite sides where they are', () => {
    fc.assert(
      fc.property(frame, area, fc.constantFrom(...edges), any, any, (start, a, edge, dx, dy) => {
        const f = fit(start, a)
        const g = resize(f, edge, dx, dy, a)
        if (!edge.includes('w')) expect(g.x).toBe(f.x)
        if (!edge.includes('n')) expect(g.y).toBe(f.y)
        if (edge.includes('w') || !edge.includes('e')) expect(g.x + g.w).toBe(f.x + f.w)
        if (edge.includes('n') || !edge.includes('s')) expect(g.y + g.h).toBe(f.y + f.h)
        if (edge.includes('e') || edge.includes('w')) expect(g.w).toBeGreaterThanOrEqual(Math.min(minimum.w, a.w, f.w))
        expect(g.y).toBeGreaterThanOrEqual(0)
      }),
    )
  })

  it('zones stay within the area and halves do not overlap', () => {
    fc.assert(
      fc.property(area, (a) => {
        for (const z of zones) {
          const f = zoneFrame(z, a)
          expect(f.x).toBeGreaterThanOrEqual(0)
          expect(f.x + f.w).toBeLessThanOrEqual(a.w)
          expect(f.y + f.h).toBeLessThanOrEqual(a.h)
          expect(zoneOf(f, a)).toBe(z)
        }
        const [l, r] = [zoneFrame('left', a), zoneFrame('right', a)]
        expect(l.x + l.w).toBeLessThan(r.x)
        const [t, b] = [zoneFrame('top-left', a), zoneFrame('bottom-left', a)]
        expect(t.y + t.h).toBeLessThan(b.y)
      }),
    )
  })

  it('snaps at edges and corners only', () => {
    const a = { w: 1000, h: 800 }
    expect([zoneAt(2, 400, a), zoneAt(998, 400, a), zoneAt(2, 5, a), zoneAt(998, 790, a), zoneAt(500, 3, a), zoneAt(500, 400, a)]).toEqual([
      'left', 'right', 'top-left', 'bottom-right', 'full', null,
    ])
  })

  it('arrow keys lead from half to quarter to half', () => {
    const a = { w: 1000, h: 800 }
    const step = (z: Zone, key: string) => zoneStep(zoneFrame(z, a), key, a)
    expect(zoneStep({ x: 100, y: 100, w: 300, h: 300 }, 'ArrowLeft', a)).toBe('left')
    expect(step('left', 'ArrowUp')).toBe('top-left')
    expect(step('top-left', 'ArrowRight')).toBe('top-right')
    expect(step('top-right', 'ArrowDown')).toBe('right')
    expect(step('left', 'ArrowLeft')).toBeNull()
  })

  it('cascades: a new window never hides the title bar of another', () => {
    fc.assert(
      fc.property(fc.record({ w: fc.integer({ min: 700, max: 2000 }), h: fc.integer({ min: 600, max: 1400 }) }), fc.integer({ min: 1, max: 8 }), (a, n) => {
        const open: Frame[] = []
        for (let i = 0; i < n; i++) {
          const f = cascade(open, { w: 480, h: 360 }, a)
          expect(open.some((o) => same(o, f))).toBe(false)
          expect(fit(f, a)).toEqual(f)
          open.push(f)
        }
      }),
    )
  })
})

describe('inside', () => {
  it('shows all of a frame from a larger screen, or as much as there is room for', () => {
    expect(inside({ x: 900, y: 600, w: 400, h: 300 }, { w: 1000, h: 700 })).toEqual({ x: 600, y: 400, w: 400, h: 300 })
    expect(inside({ x: 900, y: 600, w: 1400, h: 900 }, { w: 1000, h: 700 })).toEqual({ x: 0, y: 0, w: 1000, h: 700 })
    expect(inside({ x: 10, y: 20, w: 300, h: 200 }, { w: 1000, h: 700 })).toEqual({ x: 10, y: 20, w: 300, h: 200 })
  })
})

describe('beside what is read', () => {
  const size = { w: 680, h: 660 }
  const least = Math.round(680 * 0.62)
  const across = (a: Frame, b: Frame) => Math.min(a.x + a.w, b.x + b.w) - Math.max(a.x, b.x)

  it('covers nothing of it where a side has room, and as little as it can elsewhere, always within the area', () => {
    fc.assert(
      fc.property(fc.record({ w: fc.integer({ min: 700, max: 3000 }), h: fc.integer({ min: 500, max: 1600 }) }), frame, (a, any) => {
        const read = fit(any, a)
        const f = beside(read, [read], size, a)
        expect(f.x).toBeGreaterThanOrEqual(8)
        expect(f.x + f.w).toBeLessThanOrEqual(a.w - 8)
        expect(f.y).toBeGreaterThanOrEqual(8)
        expect(f.y + f.h).toBeLessThanOrEqual(a.h - 8)
        const room = Math.max(read.x, a.w - read.x - read.w) - 16
        expect(Math.max(0, across(f, read))).toBeLessThanOrEqual(Math.max(0, least - room))
        expect(f.w).toBeGreaterThanOrEqual(Math.min(least, a.w - 16))
      }),
    )
  })

  it('is as wide as it should be where there is room, and narrower where there is less', () => {
    const read = { x: 20, y: 40, w: 640, h: 600 }
    expect(beside(read, [], size, { w: 1800, h: 900 })).toEqual({ x: 668, y: 40, w: 680, h: 660 })
    expect(beside(read, [], size, { w: 1200, h: 900 })).toEqual({ x: 668, y: 40, w: 524, h: 660 })
    expect(beside({ ...read, x: 900 }, [], size, { w: 1600, h: 900 })).toEqual({ x: 212, y: 40, w: 680, h: 660 })
  })

  it('leaves the title of a window that begins there within reach', () => {
    const read = { x: 20, y: 40, w: 640, h: 600 }
    const a = { w: 1800, h: 900 }
    const first = beside(read, [read], size, a)
    const second = beside(read, [read, first], size, a)
    expect(second).toEqual({ ...first, y: first.y + 32 })
  })
})

describe('how much of a window is free', () => {
  const f = { x: 100, y: 100, w: 200, h: 100 }
  it.each([
    ['all of it', [], 1],
    ['all, beside another one', [{ x: 300, y: 100, w: 50, h: 50 }], 1],
    ['half', [{ x: 200, y: 0, w: 500, h: 500 }], 0.5],
    ['nothing, under two that cover it together', [{ x: 0, y: 0, w: 200, h: 500 }, { x: 200, y: 50, w: 100, h: 200 }], 0],
    ['what two leave that overlap', [{ x: 100, y: 100, w: 100, h: 100 }, { x: 150, y: 100, w: 100, h: 100 }], 0.25],
    ['its rim', [{ x: 120, y: 110, w: 160, h: 80 }], 0.36],
  ])('%s', (_, above, share) => expect(uncovered(f, above)).toBeCloseTo(share))
})
