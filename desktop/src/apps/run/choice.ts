import type { Choice } from '../../contract/contract'
import type { Hunk, ReviewFile } from '../../link/protocol'

/** The keys of all that can be picked of a file: each of its hunks, or the file where it has none. */
export function whole(file: ReviewFile): string[] {
  const hunks = file.hunks ?? []
  return hunks.length > 0 ? hunks.map((h) => `${file.path}\n${h.id}`) : [file.path]
}

/** What is taken of files where these keys are picked: whole files by their path alone. */
export function taken(files: ReviewFile[], picked: ReadonlySet<string>): Choice[] {
  return files.flatMap((f): Choice[] => {
    const keys = whole(f)
    const on = keys.filter((k) => picked.has(k))
    if (on.length === 0) return []
    if (on.length === keys.length) return [{ path: f.path }]
    return [{ path: f.path, hunks: on.map((k) => k.slice(f.path.length + 1)) }]
  })
}

export interface HunkLine {
  kind: 'add' | 'del' | 'same'
  text: string
  /** Its number in the changed file; null for a line that is gone. */
  new: number | null
}

/** The lines of a hunk with their numbers in the changed file. */
export function hunkLines(h: Hunk): HunkLine[] {
  const lines = h.text.split('\n')
  if (lines.at(-1) === '') lines.pop()
  let at = h.new
  return lines.map((l) => {
    const text = l.slice(1)
    if (l.startsWith('-')) return { kind: 'del', text, new: null }
    return { kind: l.startsWith('+') ? 'add' : 'same', text, new: at++ }
  })
}
