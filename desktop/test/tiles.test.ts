import { describe, expect, it } from 'vitest'
import { neighbour } from '../src/shell/tiles'

// Three rows: the second stands under the others' first two and has no third, as at the end of a group.
const tiles = [[0, 0], [200, 0], [400, 0], [0, 130], [200, 130], [0, 280], [200, 280], [400, 280]].map(([x, y]) => ({ x: x!, y: y! }))
const from = (at: number, ...keys: string[]) => keys.reduce((i, key) => neighbour(tiles, i, key), at)

describe('the arrow keys among tiles', () => {
  it('go on to the next row at its end, and no further than the last', () => {
    expect(from(2, 'ArrowRight')).toBe(3)
    expect(from(3, 'ArrowLeft')).toBe(2)
    expect(from(7, 'ArrowRight')).toBe(7)
    expect(from(0, 'ArrowLeft')).toBe(0)
  })
  it('go to the nearest tile of the next row', () => {
    expect(from(1, 'ArrowDown')).toBe(4)
    expect(from(2, 'ArrowDown')).toBe(4)
    expect(from(4, 'ArrowDown')).toBe(6)
    expect(from(7, 'ArrowUp')).toBe(4)
    expect(from(1, 'ArrowUp')).toBe(1)
    expect(from(6, 'ArrowDown')).toBe(6)
  })
  it('go to both ends', () => {
    expect(from(4, 'Home')).toBe(0)
    expect(from(4, 'End')).toBe(7)
  })
})
