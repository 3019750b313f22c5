import { useEffect, useState } from 'react'
import { LayoutGrid, Moon, SquareStack, Sun } from 'lucide-react'
import { useConnection } from '../stores/connection'
import { useTheme } from '../stores/theme'
import { useWindows } from '../stores/windows'
import { clock } from '../text/format'
import { day, night } from '../theme/themes'
import css from './Bar.module.css'
import { setTheme, tell } from './intents'
import { OpenWindows } from './OpenWindows'
import { useOverlay } from './overlayStore'
import { PromptBar } from './PromptBar'
import { useScreen } from './screen'
import { Waiting } from './Waiting'

const words = { connecting: 'Connecting', online: 'Connected', 'catching-up': 'Catching up', offline: 'Offline', ended: 'Signed out' }

/** The bottom bar: open windows, the prompt, the connection. */
export function Bar() {
  const { state, detail, readOnly } = useConnection()
  const scheme = useTheme((s) => s.theme.scheme)
  const phone = useScreen((s) => s.phone)
  const open = useWindows((s) => Object.keys(s.windows).length)
  const { shown, toggle } = useOverlay()
  const other = scheme === 'dark' ? day : night
  return (
    <footer className={css.bar}>
      <div className={css.windows}>
        {phone && (
          <button type="button" className={css.over} data-on-desktop data-overlay data-testid="open-apps" aria-expanded={shown === 'apps'} onClick={() => toggle('apps')}>
            <LayoutGrid size={17} aria-hidden />
            Apps
          </button>
        )}
        <button type="button" className={css.over} data-on-desktop data-overlay data-testid="open-overview" title="All windows (F9)" aria-expanded={shown === 'windows'} onClick={() => toggle('windows')}>
          <SquareStack size={17} aria-hidden />
          {phone ? 'Windows' : <span className="sr-only">All windows</span>}
          {phone && open > 0 && <span className={css.number}>{open}</span>}
        </button>
        {/* On a phone there is one window at a time, and the overview of all of them. */}
        {!phone && <OpenWindows />}
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

function Clock() {
  const [now, setNow] = useState(() => Date.now())
  useEffect(() => {
    const timer = setTimeout(() => setNow(Date.now()), 60_000 - (Date.now() % 60_000) + 20)
    return () => clearTimeout(timer)
  }, [now])
  return <time className={css.clock}>{clock(now)}</time>
}
