import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { Frame } from '../src/contract/types'
import { cascade, edges, fit, inside, minimum, move, resize, same, zoneAt, zoneFrame, zoneOf, zoneStep, type Zone } from '../src/shell/geometry'

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
