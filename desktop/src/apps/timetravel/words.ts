import type { Change } from '../../contract/types'
import type { Checkpoint, Kept, Undone, Unkept } from '../../link/protocol'
import { count } from '../../text/format'

/** Says what a restore would do, in words that a person can decide by. */
export function restoreWords(changes: Change[], kept: Kept[], unkept?: Unkept): string[] {
  if (changes.length === 0) return ['Nothing would change: everything already is as it was then.', ...stays(unkept)]
  const of = (op: Change['op']) => changes.filter((c) => c.op === op)
  const out: string[] = []
  const say = (list: Change[], verb: string) => {
    if (list.length === 0) return
    const names = list.slice(0, 3).map((c) => c.path.replace(/\/\.git\/$/, ' (its own history)').replace(/(.)\/$/, '$1 (empty)')).join(', ')
    out.push(`${count(list.length, list.some((c) => c.path.endsWith('/')) ? 'path' : 'file')} ${verb}: ${names}${list.length > 3 ? ` and ${list.length - 3} more` : ''}.`)
  }
  say(of('modified'), of('modified').length === 1 ? 'gets its old content' : 'get their old content')
  say(of('added'), of('added').length === 1 ? 'comes back' : 'come back')
  say(of('deleted'), of('deleted').length === 1 ? 'goes away' : 'go away')
  say(of('mode'), of('mode').length === 1 ? 'gets its old permissions' : 'get their old permissions')
  for (const k of kept.slice(0, 3)) out.push(`${k.path} stays as it is: ${k.reason}.`)
  if (kept.length > 3) out.push(`${count(kept.length - 3, 'more path')} ${kept.length === 4 ? 'stays' : 'stay'} as ${kept.length === 4 ? 'it is' : 'they are'}.`)
  out.push(...stays(unkept))
  out.push(`First everything${unkept && unkept.files > 0 ? ' else' : ''} is kept as it is now, so this can be undone.`)
  return out
}

/** How a checkpoint came to be. */
export const kindWords: Record<Checkpoint['kind'], string> = {
  initial: 'made with the computer', auto: 'by itself', manual: 'by hand', before: 'before work', task: 'a task’s work', push: 'a push', after: 'after a command', safety: 'before going back', restore: 'a restore',
}

/** Says what an undo takes back. */
export function undoneWords(u: Undone): string {
  const what: Record<Undone['what'], string> = {
    restore: 'the last restore', run: 'a run', command: 'a command', put: 'a change to', removal: 'the removal of', move: 'the move to', back: 'what came back from the trash:',
    add: 'what was added:', push: 'the push to', revision: 'the newest revision of', remember: 'that it was to be kept:', forget: 'that it was forgotten:',
  }
  return `${what[u.what]} ${u.title ? `“${u.title.slice(0, 80)}”` : (u.path ?? '')}`.trim()
}

/** Says what a restore does not touch because no checkpoint holds it. */
function stays(unkept?: Unkept): string[] {
  if (!unkept) return []
  const left = unkept.paths.filter((p) => !p.ignored)
  const out = left.slice(0, 3).map((p) => `${p.path} stays as it is: it ${p.reason}, and no checkpoint has it.`)
  const more = unkept.files - Math.min(3, left.length)
  if (more > 0) out.push(`${count(more, 'more file')} that no checkpoint has ${more === 1 ? 'stays as it is' : 'stay as they are'}.`)
  if (unkept.ignored > 0) out.push(`${count(unkept.ignored, 'ignored file or folder', 'ignored files and folders')} ${unkept.ignored === 1 ? 'stays as it is' : 'stay as they are'}.`)
  return out
}

/** Who made a checkpoint; the desktop itself, where its page requested it. */
export const madeBy = (c: Checkpoint): string => (c.author === 'app' ? 'the desktop' : c.author)

/** How many files could not be included in a checkpoint. */
export const leftOf = (c: Checkpoint): number => Math.max(c.left ?? 0, c.skipped?.length ?? 0)
