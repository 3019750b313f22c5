import { useCallback, useEffect, useLayoutEffect, useRef, useState, type ReactNode } from 'react'
import { CloudOff } from 'lucide-react'
import { useApps } from '../apps/registry'
import type { Frame } from '../contract/types'
import { link } from '../link/page'
import parts from '../parts/parts.module.css'
import { useConnection } from '../stores/connection'
import { front, labelled, stacked, useWindows } from '../stores/windows'
import { count } from '../text/format'
import { Bar } from './Bar'
import css from './Desktop.module.css'
import './desktop.css'
import { useDrops } from './drops'
import { ErrorCard } from './ErrorCard'
import './fromConsole'
import { Icons } from './Icons'
import { openApp } from './intents'
import { useKeys } from './keys'
import { later } from './later'
import { useOverlay } from './overlayStore'
import { useScreen } from './screen'
import { SourceError } from './SourceError'
import { Toasts } from './Toasts'
import { Window } from './Window'
import windowCss from './Window.module.css'

const Shelf = later(() => import('./Shelf'))
const Overlay = later(() => import('./Overlay'))
const Things = later(() => import('./things/Things'))

export function Desktop() {
  const space = useRef<HTMLElement>(null)
  const { area, phone } = useScreen()
  const windows = useWindows((s) => s.windows)
  const apps = useApps((s) => s.apps)
  // Where Welcome is about to open, there is nothing to see of a shelf and no need to load it.
  const known = useConnection((s) => s.loaded && (s.readOnly || !s.fresh))
  const bare = known && Object.values(windows).every((w) => w.state === 'minimised')
  const over = useOverlay((s) => s.shown)
  const [hint, setHint] = useState<Frame | null>(null)
  const order = stacked(windows)
  const active = front(windows)?.window
  const labels = labelled(windows)
  useKeys()
  const brought = useDrops()
  useWelcome()
  usePaintedMarker()

  useLayoutEffect(() => {
    const measure = () => {
      const viewport = window.visualViewport
      document.documentElement.style.setProperty('--page-height', viewport ? `${Math.round(viewport.height)}px` : '100dvh')
      const el = space.current
      if (el) useScreen.getState().measure({ w: el.clientWidth, h: el.clientHeight }, window.innerWidth)
    }
    measure()
    const observer = new ResizeObserver(measure)
    if (space.current) observer.observe(space.current)
    window.visualViewport?.addEventListener('resize', measure)
    return () => {
      observer.disconnect()
      window.visualViewport?.removeEventListener('resize', measure)
    }
  }, [])

  useEffect(() => {
    const now = () => document.visibilityState === 'visible' && link.hurry()
    window.addEventListener('online', now)
    document.addEventListener('visibilitychange', now)
    return () => {
      window.removeEventListener('online', now)
      document.removeEventListener('visibilitychange', now)
    }
  }, [])

  const swipe = useCallback((step: 1 | -1) => {
    const all = useWindows.getState().windows
    const open = Object.values(all).filter((w) => w.state !== 'minimised').sort((a, b) => (a.window < b.window ? -1 : 1))
    const at = open.findIndex((w) => w.window === front(all)?.window)
    const next = open[(at + step + open.length) % open.length]
    if (next) useWindows.getState().raise(next.window)
  }, [])

  return (
    <div data-testid="desktop">
      <main ref={space} className={css.space} aria-label="Desktop">
        <Icons className={css.icons} />
        {bare && (
          <ErrorCard what="The shelf">
            <Shelf />
          </ErrorCard>
        )}
        {hint && <div className={windowCss.ghost} style={{ left: hint.x, top: hint.y, width: hint.w, height: hint.h, zIndex: 1_000_000 }} />}
        {/* In a steady order, so that raising one never re-creates another. */}
        {[...order]
          .sort((a, b) => (a.window < b.window ? -1 : 1))
          .map((w) => (
            <Window key={w.window} record={w} label={labels[w.window] ?? w.title} app={apps[w.app]} area={area} active={w.window === active} phone={phone} swipe={swipe} hint={setHint} />
          ))}
        <Toasts />
      </main>
      {over && (
        <ErrorCard what="What lies over the windows">
          <Overlay shown={over} behind={space} />
        </ErrorCard>
      )}
      {/* Beside the windows, not over them: it may stay for hours. */}
      <div className={css.bands}>
        <Band />
        <SourceError />
        {brought && <Things />}
      </div>
      <Bar />
    </div>
  )
}

/** Says that the connection is lost, what still works, and how much waits. */
function Band() {
  const { state, detail, waiting, loaded } = useConnection()
  const down = state === 'offline' || state === 'ended' || (state === 'connecting' && !loaded)
  if (!down) return null
  const words =
    state === 'ended' ? detail : loaded ? 'Offline. What you see stays; what you do is kept and sent later.' : 'Connecting to your computer…'
  const band = (
    <div className={css.band} role="status" data-testid="offline">
      <CloudOff size={15} aria-hidden />
      <span>
        {words}
        {waiting > 0 && ` ${count(waiting, 'change')} waiting.`}
      </span>
      {state !== 'ended' && (
        <button type="button" className={parts.ghost} onClick={() => link.hurry()}>
          Try now
        </button>
      )}
    </div>
  )
  // A connection that is lost only for a moment is not mentioned.
  return state === 'ended' ? band : <After ms={900}>{band}</After>
}

/** Shows its content, and gives it room, only when it has been there for a while. */
function After({ ms, children }: { ms: number; children: ReactNode }) {
  const [late, setLate] = useState(false)
  useEffect(() => {
    const timer = setTimeout(() => setLate(true), ms)
    return () => clearTimeout(timer)
  }, [ms])
  return late && children
}

/** Opens Welcome, once, on a computer that has done nothing yet. */
function useWelcome(): void {
  const fresh = useConnection((s) => s.loaded && !s.readOnly && s.fresh)
  const known = useApps((s) => 'welcome' in s.apps)
  useEffect(() => {
    if (!fresh || !known) return
    useConnection.setState({ fresh: false })
    openApp('welcome')
  }, [fresh, known])
}

/** Marks the document once the desktop has been painted: the console's page, which frames it, waits for that. */
function usePaintedMarker(): void {
  useEffect(() => {
    const ready = () => (document.documentElement.dataset.choirReady = 'true')
    let second = 0
    const first = requestAnimationFrame(() => (second = requestAnimationFrame(ready)))
    // A frame that is not shown yet gets no animation frames.
    const timer = setTimeout(ready, 400)
    return () => {
      cancelAnimationFrame(first)
      cancelAnimationFrame(second)
      clearTimeout(timer)
    }
  }, [])
}
