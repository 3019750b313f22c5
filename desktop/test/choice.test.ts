import { expect, test } from 'vitest'
import { hunkLines, taken, whole } from '../src/apps/run/choice'

const hunk = (id: string, text = ' a\n-b\n+c\n+d\n') => ({ id, old: 3, old_lines: 2, new: 5, new_lines: 3, text })
const two = { path: 'a.ts', op: 'modified' as const, hunks: [hunk('h1'), hunk('h2')] }
const plain = { path: 'logo.png', op: 'added' as const, plain: 'binary' }

test('what is picked of files is taken by paths, and by hunks only where some are left out', () => {
  const all = new Set([two, plain].flatMap(whole))
  expect(taken([two, plain], all)).toEqual([{ path: 'a.ts' }, { path: 'logo.png' }])
  all.delete('a.ts\nh1')
  expect(taken([two, plain], all)).toEqual([{ path: 'a.ts', hunks: ['h2'] }, { path: 'logo.png' }])
  all.delete('a.ts\nh2')
  expect(taken([two, plain], all)).toEqual([{ path: 'logo.png' }])
})

test('lines of a hunk have their numbers in the changed file, and those that are gone have none', () => {
  expect(hunkLines(hunk('h')).map((l) => [l.kind, l.text, l.new])).toEqual([['same', 'a', 5], ['del', 'b', null], ['add', 'c', 6], ['add', 'd', 7]])
})
