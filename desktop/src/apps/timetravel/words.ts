import type { Change } from '../../contract/types'
import type { Kept } from '../../link/protocol'
import { count } from '../../text/format'

/** What a restore would do, in words a person can decide on. */
export function restoreWords(changes: Change[], kept: Kept[]): string[] {
  if (changes.length === 0) return ['Nothing would change: everything already is as it was then.']
  const of = (op: Change['op']) => changes.filter((c) => c.op === op)
  const out: string[] = []
  const say = (list: Change[], verb: string) => {
    if (list.length === 0) return
    const names = list.slice(0, 3).map((c) => c.path).join(', ')
    out.push(`${count(list.length, 'file')} ${verb}: ${names}${list.length > 3 ? ` and ${list.length - 3} more` : ''}.`)
  }
  say(of('modified'), of('modified').length === 1 ? 'gets its old content' : 'get their old content')
  say(of('added'), of('added').length === 1 ? 'comes back' : 'come back')
  say(of('deleted'), of('deleted').length === 1 ? 'goes away' : 'go away')
  say(of('mode'), of('mode').length === 1 ? 'gets its old permissions' : 'get their old permissions')
  for (const k of kept.slice(0, 3)) out.push(`${k.path} stays as it is: ${k.reason}.`)
  if (kept.length > 3) out.push(`${count(kept.length - 3, 'more path')} ${kept.length === 4 ? 'stays' : 'stay'} as ${kept.length === 4 ? 'it is' : 'they are'}.`)
  out.push('First everything is kept as it is now, so this can be undone.')
  return out
}
