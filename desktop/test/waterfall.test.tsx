// @vitest-environment happy-dom
import { act, cleanup, fireEvent, render, screen } from '@testing-library/react'
import { afterEach, expect, it } from 'vitest'
import { useState } from 'react'
import { noFilter, rowsOf, treeOf } from '../src/apps/trace/tree'
import { Waterfall } from '../src/apps/trace/Waterfall'
import type { Span } from '../src/link/protocol'

afterEach(cleanup)

const start = '2026-03-01T12:00:00Z'
const spans: Span[] = Array.from({ length: 5000 }, (_, i) => ({ id: `s${i}`, ...(i > 0 && { parent: 's0' }), name: i === 0 ? 'invoke_workflow run' : 'execute_tool bash', kind: 'internal', start, end: start }))
const rows = rowsOf(treeOf({ id: 't', run: 'r', ended: true, spans }), new Set(), noFilter)

function Long() {
  const [at, setAt] = useState('s0')
  return <Waterfall ref={null} rows={rows} extent={[0, 1]} origin={0} now={0} at={at} active choose={setAt} toggle={null} enter={() => {}} leave={() => {}} />
}

it('has only the rows in the page that are seen, and the one that the keyboard is at', () => {
  render(<Long />)
  const grid = screen.getByRole('treegrid')
  expect(grid.getAttribute('aria-rowcount')).toBe('5000')
  expect(screen.getAllByRole('row').length).toBeLessThan(60)
  act(() => void fireEvent.keyDown(grid, { key: 'End' }))
  expect(document.getElementById(grid.getAttribute('aria-activedescendant')!)?.getAttribute('aria-rowindex')).toBe('5000')
  expect(screen.getAllByRole('row').length).toBeLessThan(60)
})

it('tells its rows from those of the same run in another window', () => {
  render(
    <>
      <Long />
      <Long />
    </>,
  )
  const ids = screen.getAllByRole('row').map((r) => r.id)
  expect(new Set(ids).size).toBe(ids.length)
})
