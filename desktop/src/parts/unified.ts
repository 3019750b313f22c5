export interface DiffLine {
  kind: 'add' | 'del' | 'same' | 'note'
  text: string
  old: number | null
  new: number | null
}

export interface DiffFile {
  path: string
  lines: DiffLine[]
  added: number
  removed: number
  /** How many lines were left out beyond the limit. */
  hidden: number
}

/** Reads a unified diff of one or more files; at most `most` lines are kept. */
export function readDiff(text: string, most = 4000): DiffFile[] {
  const files: DiffFile[] = []
  let file: DiffFile | null = null
  let from = ''
  let oldLine = 0
  let newLine = 0
  let kept = 0
  // How many lines the hunk still has; only inside a hunk do + and - mean lines.
  let oldLeft = 0
  let newLeft = 0
  let hunks = 0 // of the current file
  const begin = (path: string) => {
    file = { path, lines: [], added: 0, removed: 0, hidden: 0 }
    files.push(file)
    oldLeft = newLeft = hunks = 0
  }
  const put = (line: DiffLine) => {
    if (!file) begin('')
    if (kept++ < most) file!.lines.push(line)
    else file!.hidden++
  }
  for (const line of text.split('\n')) {
    if (oldLeft > 0 || newLeft > 0) {
      const rest = line.slice(1)
      if (line.startsWith('+')) {
        newLeft--
        file!.added++
        put({ kind: 'add', text: rest, old: null, new: newLine++ })
        continue
      }
      if (line.startsWith('-')) {
        oldLeft--
        file!.removed++
        put({ kind: 'del', text: rest, old: oldLine++, new: null })
        continue
      }
      if (line.startsWith(' ') || line === '') {
        oldLeft--
        newLeft--
        put({ kind: 'same', text: rest, old: oldLine++, new: newLine++ })
        continue
      }
      if (line.startsWith('\\')) continue
    }
    const git = /^diff --git a\/(.+) b\/(.+)$/.exec(line)
    const hunk = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@(.*)$/.exec(line)
    if (git) begin(git[2]!)
    else if (line.startsWith('--- ')) from = name(line)
    else if (line.startsWith('+++ ')) {
      const to = name(line)
      const path = to === '/dev/null' ? from : to
      // After a git header this only repeats the name; without a git header it starts a
      // file.
      if (!file || hunks > 0) begin(path)
      else (file as DiffFile).path = path
    } else if (hunk) {
      hunks++
      oldLine = Number(hunk[1])
      newLine = Number(hunk[3])
      oldLeft = Number(hunk[2] ?? 1)
      newLeft = Number(hunk[4] ?? 1)
      put({ kind: 'note', text: `line ${newLine}${hunk[5] ? ` ${hunk[5]}` : ''}`, old: null, new: null })
    } else if (/^(Binary files|GIT binary patch)/.test(line)) put({ kind: 'note', text: 'binary content', old: null, new: null })
    else if (/^(new file|deleted file|rename (from|to)|old mode|new mode)/.test(line)) put({ kind: 'note', text: line, old: null, new: null })
  }
  return files
}

function name(line: string): string {
  return line.slice(4).replace(/\t.*$/, '').replace(/^[ab]\//, '')
}
