import { describe, expect, it } from 'vitest'
import { HostError } from '../src/link/protocol'
import { bounds, gather } from '../src/shell/things/gather'
import { addresses, named, outcome, pastedName, reasons } from '../src/shell/things/words'

type Tree = { [name: string]: Tree | string | Error }

/** Entries as a browser hands them out; a folder's in pieces. */
function entry(name: string, what: Tree | string | Error): FileSystemEntry {
  if (typeof what === 'string') return { name, isFile: true, isDirectory: false, file: (got: (f: File) => void) => got(new File([what], name)) } as unknown as FileSystemEntry
  if (what instanceof Error) return { name, isFile: true, isDirectory: false, file: (_: unknown, no: (e: Error) => void) => no(what) } as unknown as FileSystemEntry
  const createReader = () => {
    const rest = Object.entries(what)
    return { readEntries: (got: (some: FileSystemEntry[]) => void) => got(rest.splice(0, 2).map(([n, w]) => entry(n, w))) }
  }
  return { name, isFile: false, isDirectory: true, createReader } as unknown as FileSystemEntry
}

const paths = async (things: (FileSystemEntry | File)[], most = bounds, signal?: AbortSignal) => {
  const { items, left } = await gather(things, signal, most)
  return { items: items.map((i) => [...i.folders, i.name].join('/')), left: left.map((l) => `${l.name}: ${l.why}`) }
}

describe('what is dropped', () => {
  it('is all files of a folder, however many pieces it comes in, with their folders', async () => {
    expect(await paths([new File(['x'], 'x'), entry('a', { one: '1', b: { two: '2' }, three: '3', four: '4', five: '5' })])).toEqual({ items: ['x', 'a/one', 'a/three', 'a/four', 'a/five', 'a/b/two'], left: [] })
  })
  it('says of what was left out why', async () => {
    const { items, left } = await paths([entry('a', { '.git': { HEAD: 'x' }, none: {}, odd: new Error('gone'), 'ok': 'y', '.gitignore': 'z' })])
    expect(items).toEqual(['a/ok', 'a/.gitignore'])
    expect(left).toEqual(['a/.git: the history of a repository; choir add brings it in', 'a/none: an empty folder', 'a/odd: not readable: gone'])
  })
  it('is bounded in number, depth and size', async () => {
    const many = await paths([entry('a', { 1: 'x', 2: 'x', 3: 'x', sub: { 4: 'x' } })], { ...bounds, files: 3 })
    expect(many.items).toEqual(['a/1', 'a/2', 'a/3'])
    expect(many.left).toEqual(['the rest of a: more than 3 files at once; choir add brings whole projects in'])
    const deep = await paths([entry('a', { b: { c: { d: 'x' } }, e: 'x' })], { ...bounds, depth: 2 })
    expect(deep).toEqual({ items: ['a/e'], left: ['a/b/c: more than 2 folders deep; choir add brings it in'] })
    const total = await paths([new File(['123'], '1'), new File(['123'], '2'), new File(['1'], '3')], { ...bounds, bytes: 4 })
    expect(total.items).toEqual(['1', '3'])
    expect(total.left).toEqual([expect.stringMatching(/^2: more than .* at once/)])
    const large = await paths([new File(['1234'], 'large'), new File(['1'], 'small')], { ...bounds, file: 3 })
    expect(large.items).toEqual(['small'])
    expect(large.left).toEqual([expect.stringMatching(/^large: larger than .*choir files put/)])
  })
  it('ends with its signal', async () => {
    expect(await paths([entry('a', { 1: 'x' })], bounds, AbortSignal.abort())).toEqual({ items: [], left: [] })
  })
})

describe('words', () => {
  it('reads all addresses of a list, and no comments', () => {
    expect(addresses('#c\r\nhttps://a.example/\r\n\r\n  https://b.example/#x \n')).toEqual(['https://a.example/', 'https://b.example/#x'])
  })
  it('names what was pasted', () => {
    const now = new Date(2026, 10, 29, 14, 5)
    expect(pastedName({ name: 'image.png', type: 'image/png' }, now)).toBe('pasted 2026-11-29 14.05.png')
    expect(pastedName({ name: '', type: 'image/svg+xml' }, now)).toBe('pasted 2026-11-29 14.05.svg')
    expect(pastedName({ name: '', type: '' }, now)).toBe('pasted 2026-11-29 14.05')
    expect(pastedName({ name: '', type: 'image/../../x' }, now)).toBe('pasted 2026-11-29 14.05')
    expect(pastedName({ name: 'cat.png', type: 'image/png' }, now)).toBe('cat.png')
  })
  it('says each reason once, with the first names on one line, isolated', () => {
    const left = [...'abcde'].map((name) => ({ name, why: 'w' }))
    expect(reasons([...left, { name: 'two\nlines\u202e', why: 'v' }])).toEqual([`Left out: ${named('a')}, ${named('b')}, ${named('c')} and 2 more (w).`, 'Left out: \u2068two lines\u202e\u2069 (v).'])
  })
  it('says how it ended', () => {
    expect(outcome(3, 0, null)).toBe('3 files came in.')
    expect(outcome(0, 2, new HostError('exhausted', 'the disk is full', 'Free some space.'))).toBe('Nothing came in. the disk is full. Free some space.')
    expect(outcome(1, 2, new HostError('cancelled', ''))).toBe('Cancelled: 1 file came in, 2 did not.')
    expect(outcome(0, 2, new HostError('cancelled', ''))).toBe('Cancelled: nothing came in.')
  })
})
