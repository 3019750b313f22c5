import { useEffect, useRef, type KeyboardEvent } from 'react'
import { X } from 'lucide-react'
import { useApps } from '../apps/registry'
import type { WindowRecord } from '../link/protocol'
import parts from '../parts/parts.module.css'
import { useWindows } from '../stores/windows'
import { titleOf } from './overlayStore'
import css from './WindowRows.module.css'

interface Props {
  /** Where its lower left corner is. */
  at: { left: number; bottom: number }
  windows: WindowRecord[]
  labels: Record<string, string>
  active: string | undefined
  close: () => void
  /** Closes it and gives the focus back to the button that opened it. */
  leave: () => void
}

/** Windows in a list, by title. */
export default function WindowRows({ at, windows, labels, active, close, leave }: Props) {
  const apps = useApps((s) => s.apps)
  const { raise, close: closeWindow } = useWindows.getState()
  const list = useRef<HTMLUListElement>(null)
  const raised = useRef('')
  const rows = () => [...(list.current?.querySelectorAll<HTMLButtonElement>('[data-row]') ?? [])]
  useEffect(() => {
    const all = [...(list.current?.querySelectorAll<HTMLButtonElement>('[data-row]') ?? [])]
    ;(all.find((b) => b.getAttribute('aria-current') === 'true') ?? all[0])?.focus()
    // What had the focus goes with the list, and its button too when one window is left.
    return () => {
      const to = raised.current ? titleOf(raised.current) : document.querySelector<HTMLElement>('[data-overlay]')
      if (document.activeElement === document.body) to?.focus()
    }
  }, [])

  const shut = (i: number) => {
    const next = rows()[i + 1] ?? rows()[i - 1]
    if (next) next.focus()
    else leave()
    closeWindow(windows[i]!.window)
  }
  const key = (e: KeyboardEvent) => {
    const i = [...(list.current?.children ?? [])].findIndex((li) => li.contains(e.target as Node))
    const to: Record<string, number> = { ArrowDown: Math.min(i + 1, windows.length - 1), ArrowUp: Math.max(i - 1, 0), Home: 0, End: windows.length - 1 }
    if (e.key in to) rows()[to[e.key]!]?.focus()
    else if (e.key === 'Delete' && i >= 0) shut(i)
    else if (e.key === 'Escape') leave()
    else return
    e.preventDefault()
  }
  return (
    <ul className={css.list} style={at} ref={list} onKeyDown={key}>
      {windows.map((w, i) => {
        const Icon = apps[w.app]?.icon
        return (
          <li key={w.window}>
            <button
              type="button"
              data-row
              className={css.row}
              title={labels[w.window]}
              aria-current={w.window === active}
              onClick={() => {
                raised.current = w.window
                raise(w.window)
                close()
              }}
            >
              {Icon && <Icon size={14} strokeWidth={1.9} aria-hidden />}
              <span>{labels[w.window]}</span>
              {w.state === 'minimised' && <small>minimised</small>}
            </button>
            <button type="button" className={parts.icon} aria-label={`Close ${labels[w.window]}`} title="Close (Delete)" onClick={() => shut(i)}>
              <X size={14} aria-hidden />
            </button>
          </li>
        )
      })}
    </ul>
  )
}
