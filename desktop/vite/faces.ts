import { randomUUID } from 'node:crypto'
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { dirname, join, relative } from 'node:path'
import type subsetFont from 'subset-font'
import type { Plugin } from 'vite'

/** The OpenType features that the shell's styles use: those that browsers apply by themselves, and these by name. */
export const features = {
  byThemselves: ['ccmp', 'locl', 'calt', 'clig', 'kern', 'liga', 'mark', 'mkmk', 'rclt', 'rlig', 'rvrn'],
  byName: ['tnum', 'cv11', 'ss03'],
}

/** The range of weights that the shell's styles use; 700 is what a browser gives `<strong>`. */
export const weights = { least: 400, most: 700 }

/** The characters that English, and the shell itself, is written with: the part of a face that every visit needs. */
const first = [[0x00, 0x7f], [0xa0], [0xa9], [0xab], [0xb0], [0xb7], [0xbb], [0xd7], [0x2013, 0x2014], [0x2018, 0x2019], [0x201c, 0x201d], [0x2022], [0x2026], [0x2191], [0x2193], [0x2212]] as const

interface Part {
  characters: 'first' | 'rest' | 'all'
  wght: number | { min: number; max: number }
  /** The weights that it is declared for. A browser does not substitute faces of one family whose weights differ. */
  declared: string
}

interface Face {
  /** The file name of the package's style sheet. */
  sheet: RegExp
  /** How the Latin face is named in the sheet. */
  latin: RegExp
  keep: string[]
  parts: Part[]
  /** The weights that the faces of other scripts are declared for, each once. */
  others: string[]
}

const variable = { min: weights.least, max: weights.most }

const faces: Face[] = [
  {
    sheet: /\/@fontsource-variable\/inter\/index\.css$/,
    latin: /inter-latin-wght-normal\.woff2/,
    keep: [...features.byThemselves, ...features.byName],
    parts: [
      { characters: 'first', wght: variable, declared: '100 900' },
      { characters: 'rest', wght: variable, declared: '100 900' },
    ],
    others: ['100 900'],
  },
  {
    // Its ligatures are three times as large as its letters, for each end of a variable
    // axis. Monospaced text has one weight, so it needs no axis.
    sheet: /\/@fontsource-variable\/jetbrains-mono\/index\.css$/,
    latin: /jetbrains-mono-latin-wght-normal\.woff2/,
    keep: features.byThemselves,
    parts: [
      { characters: 'first', wght: weights.least, declared: '100 400' },
      { characters: 'rest', wght: weights.least, declared: '100 400' },
      { characters: 'all', wght: variable, declared: '401 800' },
    ],
    others: ['100 400', '401 800'],
  },
]

/**
 * Cuts the faces of a build down to what the shell shows of them: the weights and features
 * that it uses, and the characters of English apart from the rest of the Latin scripts,
 * which a browser loads when a page has some of them. The faces of other scripts stay as
 * they are. The dev server serves the packages' own faces, for what people make of the
 * desktop may use more.
 */
export function faced(): Plugin {
  let dir = ''
  return {
    name: 'choir-faces',
    apply: 'build',
    enforce: 'pre',
    configResolved(config) {
      dir = join(config.cacheDir, 'faces')
    },
    async transform(css, id) {
      const face = faces.find((f) => f.sheet.test(id))
      if (!face) return null
      await mkdir(dir, { recursive: true })
      return { code: await cutSheet(css, dirname(id), face, dir), map: null }
    },
  }
}

async function cutSheet(css: string, from: string, face: Face, dir: string): Promise<string> {
  const blocks = css.match(/@font-face\s*\{[^}]*\}/g) ?? []
  const out = await Promise.all(
    blocks.map(async (block) => {
      if (!face.latin.test(block)) return face.others.map((w) => declare(block, w))
      const file = /url\(([^)]+)\)/.exec(block)?.[1]
      const range = /unicode-range:\s*([^;}]+)/.exec(block)?.[1]
      if (!file || !range) throw new Error(`a face without a file or a range: ${block}`)
      const whole = await readFile(join(from, file))
      return Promise.all(
        face.parts.map(async (part, i) => {
          const characters = charactersOf(range, part.characters)
          const made = join(dir, `${/([^/]+)\.woff2$/.exec(file)![1]}-${part.characters}-${i}.woff2`)
          await place(made, await cut(whole, characters, part.wght, face.keep))
          return declare(block, part.declared, relative(from, made), rangeOf(characters))
        }),
      )
    }),
  )
  // Fails when the package's sheet has changed, for its faces would then be included whole,
  // or not at all.
  if (out.flat().length !== (blocks.length - 1) * face.others.length + face.parts.length) throw new Error(`no face matches ${face.latin}`)
  return out.flat().join('\n')
}

/** Writes a file atomically: another build on this machine may be reading it, or writing the same. */
export async function place(file: string, content: Uint8Array): Promise<void> {
  const tmp = `${file}.${randomUUID()}`
  await writeFile(tmp, content)
  await rename(tmp, file)
}

/** Makes a face with some of the characters, weights and features. */
async function cut(face: Buffer, characters: number[], wght: Part['wght'], keepFeatures: string[]): Promise<Buffer> {
  // Only a build needs this module; imported at the top, it would be loaded with every dev
  // server.
  const subset = createRequire(import.meta.url)('subset-font') as typeof subsetFont
  return subset(face, String.fromCodePoint(...characters), { targetFormat: 'woff2', variationAxes: { wght }, keepFeatures })
}

function declare(block: string, declared: string, file?: string, range?: string): string {
  let b = block.replace(/font-weight:[^;]+;/, `font-weight: ${declared};`)
  if (file) b = b.replace(/url\([^)]+\)/, `url(${file})`)
  if (range) b = b.replace(/unicode-range:[^;}]+/, `unicode-range: ${range}`)
  return b
}

/** The characters of a `unicode-range` that are, or are not, in `first`. */
export function charactersOf(range: string, which: Part['characters']): number[] {
  const wanted = new Set(first.flatMap(([from, to = from]) => span(from, to)))
  const all = range.split(',').flatMap((r) => {
    const m = /^\s*U\+([0-9A-F]+)(?:-([0-9A-F]+))?\s*$/i.exec(r)
    if (!m) throw new Error(`no unicode-range: ${r}`)
    return span(parseInt(m[1]!, 16), parseInt(m[2] ?? m[1]!, 16))
  })
  return which === 'all' ? all : all.filter((c) => wanted.has(c) === (which === 'first'))
}

/** Characters in ascending order as a `unicode-range`. */
export function rangeOf(characters: number[]): string {
  const out: string[] = []
  for (let i = 0; i < characters.length; i++) {
    const from = characters[i]!
    while (characters[i + 1] === characters[i]! + 1) i++
    const to = characters[i]!
    out.push(`U+${from.toString(16).toUpperCase()}${to > from ? `-${to.toString(16).toUpperCase()}` : ''}`)
  }
  return out.join(',')
}

function span(from: number, to: number): number[] {
  return Array.from({ length: to - from + 1 }, (_, i) => from + i)
}
