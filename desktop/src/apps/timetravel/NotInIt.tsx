import { ShieldOff } from 'lucide-react'
import type { Checkpoint } from '../../link/protocol'
import { count } from '../../text/format'
import css from './TimeTravel.module.css'
import { leftOf } from './words'

/** What a checkpoint does not hold although it was in the workspace: a restore can't bring it back. */
export function NotInIt({ c }: { c: Checkpoint }) {
  const left = leftOf(c)
  const ignored = Math.max(c.outside ?? 0, c.ignored?.length ?? 0)
  if (left + ignored === 0) return null
  const skipped = c.skipped ?? []
  const outside = c.ignored ?? []
  return (
    <details className={css.notin} data-testid="not-in-it" data-left={left > 0} open={left > 0}>
      <summary>
        <ShieldOff size={14} aria-hidden />
        <span>
          {left > 0 && <b>{left === 1 ? '1 file is not in it' : `${count(left, 'file')} are not in it`}</b>}
          {left > 0 && ignored > 0 && '; '}
          {ignored > 0 && `${count(ignored, 'file or folder', 'files and folders')} ignored by .gitignore ${ignored === 1 ? 'is' : 'are'} not kept`}
        </span>
      </summary>
      <p>Going back to this checkpoint does not bring {left + ignored === 1 ? 'it' : 'these'} back.</p>
      <ul>
        {skipped.map((s) => (
          <li key={s}>
            <code>{s.slice(0, s.indexOf(': '))}</code> {s.slice(s.indexOf(': ') + 2)}
          </li>
        ))}
        {outside.map((p) => (
          <li key={p} data-ignored>
            <code>{p}</code> is ignored
          </li>
        ))}
        {left + ignored > skipped.length + outside.length && <li>and more: choir checkpoints show {c.commit.slice(0, 8)}</li>}
      </ul>
    </details>
  )
}
