import { useLayoutEffect, useRef, useState, type ReactNode, type RefObject } from 'react'
import { useApps } from '../apps/registry'
import type { WindowRecord } from '../link/protocol'
import { front, labelled, useWindows } from '../stores/windows'
import { count } from '../text/format'
import css from './OpenWindows.module.css'
import { arrange, grouped, type Place } from './taskbar'
import { WindowList } from './WindowList'

/** The bar's row of windows: by title, those of an app together, and a list of what has no room. */
export function OpenWindows() {
  const windows = useWindows((s) => s.windows)
  const apps = useApps((s) => s.apps)
  const row = useRef<HTMLDivElement>(null)
  const active = front(windows)?.window
  const labels = labelled(windows)
  const { shown, hidden } = arrange(grouped(windows, apps), useWidth(row), { labels, apps })
  const rest = hidden.flatMap((g) => g.windows)
  return (
    <div className={css.row} ref={row}>
      <ul className={css.groups} aria-label="Open windows">
        {shown.map((place) => (
          <li key={place.group.app} className={css.group} data-look={place.look} data-many={place.group.windows.length > 1} style={{ minWidth: place.width }}>
            <Inside place={place} labels={labels} active={active} />
          </li>
        ))}
      </ul>
      {rest.length > 0 && (
        <WindowList className={css.more} name={`${count(rest.length, 'more window')}`} windows={rest} labels={labels} active={active}>
          +{rest.length}
          <span className="sr-only"> more {rest.length === 1 ? 'window' : 'windows'}</span>
        </WindowList>
      )}
    </div>
  )
}

function Inside({ place: { group, look }, labels, active }: { place: Place; labels: Record<string, string>; active: string | undefined }) {
  const app = useApps((s) => s.apps[group.app])
  const Icon = app?.icon
  const icon = Icon && <Icon size={14} strokeWidth={1.9} aria-hidden />
  const name = app?.name ?? group.app
  const [one] = group.windows
  if (group.windows.length === 1 && one) {
    return (
      <Chip record={one} label={labels[one.window] ?? one.title} active={active}>
        {icon}
        <span className={look === 'icon' ? 'sr-only' : css.title}>{labels[one.window]}</span>
      </Chip>
    )
  }
  if (look !== 'titles') {
    return (
      <WindowList className={css.chip} name={`${name}, ${count(group.windows.length, 'window')}`} windows={group.windows} labels={labels} active={active}>
        {icon}
        <span className={look === 'name' ? css.title : 'sr-only'}>{name}</span>
        <span className={css.count}>{group.windows.length}</span>
        <span className="sr-only">windows</span>
      </WindowList>
    )
  }
  return (
    <>
      <span className={css.head} title={name}>
        {icon}
      </span>
      <ul className={css.titles} aria-label={name}>
        {group.windows.map((w) => (
          <li key={w.window}>
            <Chip record={w} label={labels[w.window] ?? w.title} active={active}>
              <span className={css.title}>{labels[w.window]}</span>
            </Chip>
          </li>
        ))}
      </ul>
    </>
  )
}

function Chip({ record, label, active, children }: { record: WindowRecord; label: string; active: string | undefined; children: ReactNode }) {
  const { raise, place } = useWindows.getState()
  const minimised = record.state === 'minimised'
  const current = record.window === active
  return (
    <button type="button" className={css.chip} data-on-desktop title={minimised ? `${label} (minimised)` : label} aria-current={current} data-minimised={minimised} onClick={() => (current ? place(record.window, record.frame, 'minimised') : raise(record.window))}>
      {children}
      {minimised && <span className="sr-only">, minimised</span>}
    </button>
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
