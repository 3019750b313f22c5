import { useEffect, useLayoutEffect, useRef, useState, type RefObject } from 'react'
import { Moon, Sun } from 'lucide-react'
import { useApps } from '../apps/registry'
import { useConnection } from '../stores/connection'
import { useTheme } from '../stores/theme'
import { front, labelled, useWindows } from '../stores/windows'
import { clock } from '../text/format'
import { day, night } from '../theme/themes'
import css from './Bar.module.css'
import { chips } from './chips'
import { setTheme, tell } from './intents'
import { AllWindows } from './AllWindows'
import { PromptBar } from './PromptBar'
import { Waiting } from './Waiting'

const words = { connecting: 'Connecting', online: 'Connected', 'catching-up': 'Catching up', offline: 'Offline', ended: 'Signed out' }

/** The bottom bar: open windows, the prompt, the connection. */
export function Bar() {
  const windows = useWindows((s) => s.windows)
  const apps = useApps((s) => s.apps)
  const { state, detail, readOnly } = useConnection()
  const scheme = useTheme((s) => s.theme.scheme)
  const active = front(windows)?.window
  const { raise, place } = useWindows.getState()
  const row = useRef<HTMLDivElement>(null)
  const room = useWidth(row)
  const labels = labelled(windows)
  const all = Object.values(windows).sort((a, b) => (a.window < b.window ? -1 : 1))
  const { most, tight } = chips(all.length, room)
  // The front window is always among those that are shown.
  const shown = all.length <= most ? all : all.filter((w, i) => i < most - 1 || w.window === active).slice(0, most)
  const other = scheme === 'dark' ? day : night
  return (
    <footer className={css.bar}>
      <div className={css.windows} ref={row}>
        <ul className={css.chips} aria-label="Open windows">
          {shown.map((w) => {
              const Icon = apps[w.app]?.icon
              const label = labels[w.window] ?? w.title
              return (
                <li key={w.window}>
                  <button
                    type="button"
                    className={css.chip}
                    data-on-desktop
                    title={label}
                    aria-current={w.window === active}
                    data-minimised={w.state === 'minimised'}
                    onClick={() => (w.window === active ? place(w.window, w.frame, 'minimised') : raise(w.window))}
                  >
                    {Icon && <Icon size={14} strokeWidth={1.9} aria-hidden />}
                    <span className={tight && w.window !== active ? 'sr-only' : undefined}>{label}</span>
                  </button>
                </li>
              )
            })}
        </ul>
        {all.length > shown.length && <AllWindows labels={labels} active={active} more={all.length - shown.length} />}
      </div>
      <div className={css.prompt}>
        <PromptBar />
      </div>
      <div className={css.state}>
        <Waiting />
        <span className={css.connection} data-testid="connection" data-state={state} title={detail || words[state]} role="status">
          <span className={css.dot} data-state={state} />
          {state === 'online' ? <span className="sr-only">Connected</span> : words[state]}
        </span>
        {!readOnly && (
          <button type="button" className={css.theme} data-on-desktop aria-label={`Theme ${other.name}`} title={`Theme ${other.name}`} onClick={() => void setTheme(other).catch(tell)}>
            {scheme === 'dark' ? <Sun size={16} aria-hidden /> : <Moon size={16} aria-hidden />}
          </button>
        )}
        <Clock />
      </div>
    </footer>
  )
}

/** The width of an element, as it changes. */
function useWidth(of: RefObject<HTMLElement | null>): number {
  const [width, setWidth] = useState(0)
  useLayoutEffect(() => {
    const el = of.current
    if (!el) return
    const observer = new ResizeObserver(() => setWidth(el.clientWidth))
    observer.observe(el) // which also tells the first width, before it is painted
    return () => observer.disconnect()
  }, [of])
  return width
}

function Clock() {
  const [now, setNow] = useState(() => Date.now())
  useEffect(() => {
    const timer = setTimeout(() => setNow(Date.now()), 60_000 - (Date.now() % 60_000) + 20)
    return () => clearTimeout(timer)
  }, [now])
  return <time className={css.clock}>{clock(now)}</time>
}
