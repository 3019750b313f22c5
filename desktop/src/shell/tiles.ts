// Where the arrow keys go among tiles that flow into rows.

interface Corner {
  x: number
  y: number
}

/** The index of the tile that a key leads to from another one; the same where there is none further. */
export function neighbour(tiles: Corner[], at: number, key: string): number {
  const from = tiles[at]
  if (!from) return 0
  if (key === 'Home') return 0
  if (key === 'End') return tiles.length - 1
  if (key === 'ArrowLeft') return Math.max(0, at - 1)
  if (key === 'ArrowRight') return Math.min(tiles.length - 1, at + 1)
  const way = key === 'ArrowUp' ? -1 : 1
  // The nearest row first, then the nearest in it.
  const distance = (t: Corner) => Math.abs(t.y - from.y) * 10_000 + Math.abs(t.x - from.x)
  return tiles.reduce((best, t, i) => ((t.y - from.y) * way > 0 && (best === at || distance(t) < distance(tiles[best]!)) ? i : best), at)
}

export const arrows = ['ArrowLeft', 'ArrowRight', 'ArrowUp', 'ArrowDown', 'Home', 'End']
