import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { plain } from '../src/apps/command/plain'
import { matches } from '../src/apps/events/filter'
import { restoreWords } from '../src/apps/timetravel/words'
import { newID } from '../src/contract/id'
import { readDiff } from '../src/parts/unified'
import { commandLine, duration, gist } from '../src/text/format'
import { event } from './fake'

describe('ids', () => {
  it('are UUIDs of version 7 that sort by time', () => {
    const early = newID(1_700_000_000_000)
    const late = newID(1_700_000_000_001)
    expect(early).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/)
    expect(early < late).toBe(true)
    expect(parseInt(early.replace('-', '').slice(0, 12), 16)).toBe(1_700_000_000_000)
  })
})

describe('a diff', () => {
  const text = `diff --git a/a.txt b/a.txt
--- a/a.txt
+++ b/a.txt
@@ -1,3 +1,3 @@
 one
--- not a header
+++ not a header either
 three
diff --git a/new b/new
new file mode 100644
--- /dev/null
+++ b/new
@@ -0,0 +1 @@
+hello
\\ No newline at end of file
diff --git a/pic.png b/pic.png
Binary files a/pic.png and b/pic.png differ
`
  it('is read file by file, with numbers', () => {
    const files = readDiff(text)
    expect(files.map((f) => [f.path, f.added, f.removed])).toEqual([['a.txt', 1, 1], ['new', 1, 0], ['pic.png', 0, 0]])
    expect(files[0]!.lines.map((l) => [l.kind, l.old, l.new])).toEqual([['note', null, null], ['same', 1, 1], ['del', 2, null], ['add', null, 2], ['same', 3, 3]])
  })
  it('says how much it left out', () => {
    const long = `--- a/x\n+++ b/x\n@@ -0,0 +1,50 @@\n${'+y\n'.repeat(50)}`
    const [file] = readDiff(long, 10)
    expect(file!.lines).toHaveLength(10)
    expect(file!.hidden).toBe(41) // the hunk's own line counts as well
    expect(file!.added).toBe(50)
  })
  it('is never more than its text, whatever that is', () => {
    fc.assert(fc.property(fc.string(), (s) => void readDiff(s)))
  })
})

describe('output', () => {
  it.each([
    ['\u001b[31mred\u001b[0m', 'red'],
    ['\u001b]0;title\u0007text', 'text'],
    ['\u001b]52;c;c2VjcmV0\u001b\\text', 'text'],
    ['10%\r20%\r30%\n', '30%\n'],
    ['a\r\nb', 'a\nb'],
    ['bell\u0007 and \u0000nul', 'bell and nul'],
  ])('%j is shown as %j', (raw, shown) => expect(plain(raw)).toBe(shown))
})

describe('words', () => {
  it('quote a command as it could be typed', () => {
    expect(commandLine(['git', 'commit', '-m', "it's"])).toBe(`git commit -m 'it'\\''s'`)
    expect(commandLine(['sh', '-c', 'ls | wc'])).toBe('ls | wc')
  })
  it('say what a restore does', () => {
    const at = (path: string, op: 'added' | 'modified' | 'deleted') => ({ path, op, added: 0, removed: 0 })
    expect(restoreWords([], [])[0]).toContain('Nothing would change')
    const words = restoreWords([at('a', 'modified'), at('b', 'deleted'), at('c', 'deleted'), at('d', 'deleted'), at('e', 'deleted')], [{ path: 'deps', reason: 'a folder is there' }])
    expect(words).toEqual([
      '1 file gets its old content: a.',
      '4 files go away: b, c, d and 1 more.',
      'deps stays as it is: a folder is there.',
      'First everything is kept as it is now, so this can be undone.',
    ])
  })
  it('say which folders are empty', () => {
    const words = restoreWords([{ path: 'workspace/', op: 'added', added: 0, removed: 0 }], [])
    expect(words[0]).toBe('1 path comes back: workspace (empty).')
  })
  it('find events', () => {
    const e = event(7, 'checkpoint.created', { message: 'Deep blue' })
    const all = { text: '', kind: 'all', noise: false } as const
    expect(matches(e, { ...all, text: 'blue CHECK' })).toBe(true)
    expect(matches(e, { ...all, text: 'blue red' })).toBe(false)
    expect(matches(e, { ...all, kind: 'director' })).toBe(false)
    expect(matches(event(8, 'window.moved', {}), all)).toBe(false)
  })
})

describe('gist', () => {
  it('is the first paragraph without its marks', () => {
    expect(gist('The desktop has a *Clock* app: see `choiros/src`.\n\nThis was a rehearsal.')).toBe('The desktop has a Clock app: see choiros/src.')
    expect(gist('## Done\nwith **all** of [it](https://x.test), 2 * 3 * 4')).toBe('Done with all of it, 2 * 3 * 4')
    expect(gist('')).toBe('')
  })
})

describe('a duration', () => {
  it('has no sixtieth second', () => {
    expect([950, 9960, 59_400, 59_700, 119_700, 3_599_900].map(duration)).toEqual(['950 ms', '10 s', '59 s', '1 min 0 s', '2 min 0 s', '1 h 0 min'])
    expect(duration(4200)).toBe('4.2 s')
  })
})
