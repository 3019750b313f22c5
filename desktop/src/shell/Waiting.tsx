import { useCallback, useRef, useState } from 'react'
import { link } from '../link/page'
import type { Action } from '../link/outbox'
import parts from '../parts/parts.module.css'
import { useConnection } from '../stores/connection'
import { count, oneLine } from '../text/format'
import { useAway } from './popover'
import css from './Waiting.module.css'

/** The actions that wait for the log: how many, which, why, and buttons to send or discard them. */
export function Waiting() {
  const queued = useConnection((s) => s.queued)
  const online = useConnection((s) => s.state === 'online')
  const [open, setOpen] = useState(false)
  const box = useRef<HTMLDivElement>(null)
  const stuck = queued.filter((q) => q.stuck).length

  const close = useCallback(() => setOpen(false), [])
  useAway(open, box, close)

  // Actions that wait only for a moment are not shown.
  if (queued.length === 0 || (online && stuck === 0)) return null
  return (
    <div className={css.waiting} ref={box}>
      <button type="button" className={css.count} data-on-desktop data-stuck={stuck > 0} aria-expanded={open} data-testid="waiting" onClick={() => setOpen(!open)}>
        {stuck > 0 ? `${stuck} not sent` : `${count(queued.length, 'change')} waiting`}
      </button>
      {open && (
        <section className={css.list} aria-label="What waits to be sent">
          <h2>What waits to be sent</h2>
          <ul>
            {queued.map((q) => (
              <li key={q.action.id}>
                <div>
                  <b>{wordsOf(q.action)}</b>
                  <small>{q.stuck || (online ? 'On its way.' : 'Goes out when the connection is back.')}</small>
                </div>
                {q.stuck && (
                  <button type="button" className={parts.ghost} onClick={() => link.again(q.action.id)}>
                    Send again
                  </button>
                )}
                <button type="button" className={parts.ghost} onClick={() => link.discard(q.action.id)}>
                  Discard
                </button>
              </li>
            ))}
          </ul>
        </section>
      )}
    </div>
  )
}

const names: Partial<Record<Action['type'], string>> = {
  'window.opened': 'A window opened', 'window.moved': 'A window moved', 'window.focused': 'A window raised', 'window.closed': 'A window closed',
  'run.steered': 'A note for a run', 'run.commanded': 'A command to a run', 'question.answered': 'An answer', 'model.switched': 'Another model for a run',
}

function wordsOf(a: Action): string {
  const text = (a.data as { text?: unknown } | undefined)?.text
  if (typeof text === 'string') return `${names[a.type] ?? 'A prompt'}: ${oneLine(text.slice(0, 200), 60)}`
  return names[a.type] ?? a.type
}
