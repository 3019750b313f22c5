import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { charactersOf, features, place, rangeOf, weights } from '../vite/faces'

const source = join(import.meta.dirname, '..', 'src')
const styles = readdirSync(source, { recursive: true, encoding: 'utf8' }).filter((f) => f.endsWith('.css')).map((f) => ({ f, css: readFileSync(join(source, f), 'utf8') }))

// The dev server shows what people make of the desktop, with the complete faces.
describe('the faces of a build', () => {
  // Builds of one machine share a folder. A face that was read while another build wrote it was
  // once empty.
  it('are whole whenever they are read', async () => {
    const dir = mkdtempSync(join(tmpdir(), 'faces-'))
    try {
      const file = join(dir, 'face')
      const face = new Uint8Array(1 << 20)
      await place(file, face)
      let writing = true
      const writes = Promise.all(Array.from({ length: 20 }, () => place(file, face))).finally(() => (writing = false))
      const seen = new Set<number>()
      while (writing) seen.add((await readFile(file)).length)
      await writes
      expect(seen).toEqual(new Set([face.length]))
      expect(readdirSync(dir)).toEqual(['face'])
    } finally {
      rmSync(dir, { recursive: true })
    }
  })

  it('have every feature that the shell’s styles ask for', () => {
    const numeric: Record<string, string> = { 'tabular-nums': 'tnum' }
    const asked = styles.flatMap(({ css }) => [
      ...[...css.matchAll(/font-feature-settings:([^;}]+)/g)].flatMap((m) => [...m[1]!.matchAll(/['"](\w{4})['"]/g)].map((t) => t[1]!)),
      ...[...css.matchAll(/font-variant(?:-[a-z]+)?:([^;}]+)/g)].flatMap((m) => m[1]!.trim().split(/\s+/).map((v) => numeric[v] ?? v)),
    ])
    expect(new Set(asked)).toEqual(new Set(features.byName))
  })

  it('have every weight that they ask for', () => {
    const asked = styles.flatMap(({ f, css }) => [...css.matchAll(/font(?:-weight)?:\s*(\w+)\b(?![\w.%/])/g)].map((m) => ({ f, weight: m[1]! })))
    expect(asked.length).toBeGreaterThan(20)
    for (const { f, weight } of asked) {
      if (/^(inherit|normal|bold)$/.test(weight)) continue
      expect(Number(weight), f).toBeGreaterThanOrEqual(weights.least)
      expect(Number(weight), f).toBeLessThanOrEqual(weights.most)
    }
  })

  it('have each character of a range in one of two parts', () => {
    const range = 'U+0000-00FF,U+0131,U+2000-206F,U+FFFD'
    const [all, first, rest] = (['all', 'first', 'rest'] as const).map((w) => charactersOf(range, w))
    expect([...first!, ...rest!].sort((a, b) => a - b)).toEqual(all)
    for (const c of 'The quick (brown) fox’s “dog” — 100 % · …\n\t') expect(first).toContain(c.codePointAt(0))
    for (const c of 'éßœ') expect(first).not.toContain(c.codePointAt(0))
  })

  it('are declared for the characters that they have', () => {
    fc.assert(fc.property(fc.uniqueArray(fc.nat(0xffff), { minLength: 1 }), (some) => {
      const sorted = some.sort((a, b) => a - b)
      expect(charactersOf(rangeOf(sorted), 'all')).toEqual(sorted)
    }))
    expect(() => charactersOf('U+4??', 'all')).toThrow()
  })
})
