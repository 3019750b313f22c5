import { memo, Suspense, useEffect, useRef, useState, type KeyboardEvent, type PointerEvent } from 'react'
import { Maximize2, Minimize2, Minus, X } from 'lucide-react'
import { renew, type App } from '../apps/registry'
import type { Frame } from '../contract/types'
import type { WindowRecord } from '../link/protocol'
import parts from '../parts/parts.module.css'
import { Skeleton } from '../parts/Skeleton'
import { useWindows } from '../stores/windows'
import { ErrorCard } from './ErrorCard'
import { edges, fit, inside, move, resize, same, zoneAt, zoneFrame, type Edge, type Size, type Zone } from './geometry'
import css from './Window.module.css'

interface Props {
  record: WindowRecord
  /** Its title, numbered where other windows have the same one. */
  label: string
  app: App | undefined
  area: Size
  active: boolean
  phone: boolean
  /** Steps to the next (1) or the last (-1) window, on a phone. */
  swipe: (step: 1 | -1) => void
  /** Shows where the window would be placed if it were released now. */
  hint: (frame: Frame | null) => void
}

interface Grip {
  edge: Edge | null
  x: number
  y: number
  from: Frame
}

export const Window = memo(function Window({ record, label, app, area, active, phone, swipe, hint }: Props) {
  const { place, raise, close } = useWindows.getState()
  const id = record.window
  const [live, setLive] = useState<Frame | null>(null)
  const grip = useRef<Grip | null>(null)
  const zone = useRef<Zone | null>(null)
  // A window that was placed by somebody looking at this very area stays where it is, even
  // half outside; one placed on another screen is shown whole.
  const [placed, setPlaced] = useState<{ frame: Frame; area: Size | null }>({ frame: record.frame, area: null })
  if (!same(placed.frame, record.frame)) setPlaced({ frame: record.frame, area })
  const here = placed.area?.w === area.w && placed.area.h === area.h
  const normal = (here ? fit : inside)(record.frame, area, { w: app?.window.minW ?? 280, h: app?.window.minH ?? 180 })
  const shown = live ?? (record.state === 'maximised' ? zoneFrame('full', area) : normal)
  const Icon = app?.icon

  const begin = (e: PointerEvent, edge: Edge | null) => {
    if (e.button !== 0) return
    raise(id)
    if (!phone) e.currentTarget.setPointerCapture(e.pointerId)
    grip.current = { edge, x: e.clientX, y: e.clientY, from: shown }
  }

  const drag = (e: PointerEvent) => {
    const g = grip.current
    if (!g || phone) return
    const dx = e.clientX - g.x
    const dy = e.clientY - g.y
    if (!live && Math.hypot(dx, dy) < 4) return
    if (g.edge) return setLive(resize(g.from, g.edge, dx, dy, area, { w: app?.window.minW ?? 280, h: app?.window.minH ?? 180 }))
    if (record.state === 'maximised' && !live) {
      // Dragged off the top edge, it gets its own size again, under the pointer.
      g.from = { ...normal, x: Math.round(e.clientX - normal.w * ((g.x - shown.x) / shown.w)), y: 0 }
      g.x = e.clientX
      g.y = e.clientY
    }
    zone.current = zoneAt(e.clientX, e.clientY, area)
    hint(zone.current ? zoneFrame(zone.current, area) : null)
    setLive(move(g.from, e.clientX - g.x, e.clientY - g.y, area))
  }

  const end = (e: PointerEvent) => {
    const g = grip.current
    grip.current = null
    if (g && phone && Math.abs(e.clientX - g.x) > 60 && Math.abs(e.clientY - g.y) < 60) return swipe(e.clientX < g.x ? 1 : -1)
    if (live) {
      if (zone.current === 'full') place(id, record.frame, 'maximised')
      else place(id, zone.current ? zoneFrame(zone.current, area) : live, 'normal')
    }
    cancel()
  }

  const cancel = () => {
    grip.current = null
    zone.current = null
    hint(null)
    setLive(null)
  }

  const toggle = () => place(id, record.frame, record.state === 'maximised' ? 'normal' : 'maximised')

  const key = (e: KeyboardEvent) => {
    const step = 16
    const by: Record<string, [number, number]> = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] }
    const d = by[e.key]
    if (d && !e.ctrlKey && !e.altKey && !e.metaKey && !phone) {
      e.preventDefault()
      place(id, e.shiftKey ? resize(normal, 'se', ...d, area) : move(normal, ...d, area), 'normal')
    } else if (e.key === 'Escape' && live) cancel()
  }

  return (
    <section
      className={css.window}
      aria-label={label}
      data-testid="window"
      data-window={id}
      data-app={record.app}
      data-active={active}
      data-moving={live !== null}
      data-hidden={record.state === 'minimised' || (phone && !active)}
      data-phone={phone}
      style={phone ? { zIndex: record.z } : { left: shown.x, top: shown.y, width: shown.w, height: shown.h, zIndex: record.z }}
      onPointerDownCapture={() => !active && raise(id)}
      // The Tab key also gets into windows that others cover; the event comes to where the focus is then.
      onKeyUpCapture={(e) => e.key === 'Tab' && !active && raise(id)}
    >
      <header className={css.bar}>
        <button
          type="button"
          className={css.title}
          aria-label={`${label}: arrow keys move, with Shift they resize`}
          onPointerDown={(e) => begin(e, null)}
          onPointerMove={drag}
          onPointerUp={end}
          onPointerCancel={cancel}
          onDoubleClick={phone ? undefined : toggle}
          onKeyDown={key}
        >
          {Icon && <Icon size={15} strokeWidth={1.9} aria-hidden />}
          <span>{label}</span>
        </button>
        <button type="button" className={parts.icon} aria-label={`Minimise ${label}`} onClick={() => place(id, record.frame, 'minimised')}>
          <Minus size={15} aria-hidden />
        </button>
        {!phone && (
          <button type="button" className={parts.icon} aria-label={record.state === 'maximised' ? `Restore the size of ${label}` : `Maximise ${label}`} onClick={toggle}>
            {record.state === 'maximised' ? <Minimize2 size={13} aria-hidden /> : <Maximize2 size={13} aria-hidden />}
          </button>
        )}
        <button type="button" className={parts.icon} aria-label={`Close ${label}`} onClick={() => close(id)}>
          <X size={15} aria-hidden />
        </button>
      </header>
      <div className={css.body}>
        <ErrorCard what={app?.name ?? record.app} again={() => renew(record.app)}>
          <Suspense fallback={<Skeleton />}>
            <Content app={app} record={record} active={active} />
          </Suspense>
        </ErrorCard>
      </div>
      {edges.map((edge) => (
        <div key={edge} className={css.edge} data-edge={edge} onPointerDown={(e) => begin(e, edge)} onPointerMove={drag} onPointerUp={end} onPointerCancel={cancel} />
      ))}
    </section>
  )
})

function Content({ app, record, active }: { app: App | undefined; record: WindowRecord; active: boolean }) {
  const App = app?.component
  const [late, setLate] = useState(false)
  useEffect(() => {
    const timer = setTimeout(() => setLate(true), 1500)
    return () => clearTimeout(timer)
  }, [])
  if (!App) {
    // Just after the page was opened, apps may still be loading.
    if (!late) return <Skeleton />
    throw new Error(`There is no app called “${record.app}” in src/apps/.`)
  }
  return <App window={record.window} props={record.props ?? noProps} active={active} />
}

const noProps = {}
