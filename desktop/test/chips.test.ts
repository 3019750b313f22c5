import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { chips } from '../src/shell/chips'

describe('the row of windows', () => {
  it('has room for what it shows, whatever its width', () => {
    for (let room = 160; room < 900; room += 7) {
      for (let open = 0; open < 30; open++) {
        const { most } = chips(open, room)
        const shown = Math.min(open, most)
        const needs = shown === 0 ? 0 : 96 + (shown - 1) * 48 + (open > shown ? 60 : 0)
        expect(needs, `${open} windows in ${room} px`).toBeLessThanOrEqual(room)
      }
    }
  })
  it('shows names while they can be read', () => {
    expect(chips(2, 282).tight).toBe(false)
    expect(chips(3, 282).tight).toBe(true)
  })
  it('counts with the widths of its style sheet', () => {
    const css = readFileSync('src/shell/Bar.module.css', 'utf8')
    expect(css).toContain(".chips li { flex: 0 1 auto; min-width: 44px; }")
    expect(css).toContain(".chips li:has([aria-current='true']) { min-width: 96px; }")
  })
})
