import { useEffect, useRef, useState, type KeyboardEvent, type RefObject } from 'react'
import { X } from 'lucide-react'
import { useApps } from '../apps/registry'
import type { WindowRecord } from '../link/protocol'
import parts from '../parts/parts.module.css'
import { front, labelled, useWindows } from '../stores/windows'
import { count } from '../text/format'
import { useCovering } from './covering'
import css from './Overview.module.css'
import { useOverlay } from './overlayStore'
import { useScreen } from './screen'
import { grouped } from './taskbar'
import { arrows, neighbour } from './tiles'
import windowCss from './Window.module.css'

/** All windows as tiles, by app: raised, closed and found by title, with keys, pointer and fingers. */
export function Overview({ behind }: { behind: RefObject<HTMLElement | null> }) {
  const windows = useWindows((s) => s.windows)
  const apps = useApps((s) => s.apps)
  const phone = useScreen((s) => s.phone)
  const { hide, leaveTo } = useOverlay.getState()
  const page = useRef<HTMLElement>(null)
  const field = useRef<HTMLInputElement>(null)
  const [filter, setFilter] = useState('')
  const active = front(windows)?.window
  const [at, setAt] = useState(active)
  const words = useFirstWords(windows)
  useCovering(page, behind, true)
  const labels = labelled(windows)
  const nameOf = (app: string) => apps[app]?.name ?? app
  const wanted = filter.trim().toLowerCase()
  const groups = grouped(windows, apps)
    .map((g) => ({ ...g, windows: g.windows.filter((w) => `${labels[w.window]} ${nameOf(g.app)}`.toLowerCase().includes(wanted)) }))
    .filter((g) => g.windows.length > 0)
  const shown = groups.flatMap((g) => g.windows.map((w) => w.window))
  const current = at && shown.includes(at) ? at : shown[0]

  const tile = (id: string | undefined) => page.current?.querySelector<HTMLElement>(`[data-tile="${CSS.escape(id ?? '')}"]`)
  useEffect(() => (page.current?.querySelector<HTMLElement>('[data-tile][tabindex="0"]') ?? page.current)?.focus(), [])

  const go = (id: string | undefined) => {
    setAt(id)
    ;(tile(id) ?? page.current)?.focus()
  }
  const raise = (id: string) => {
    useWindows.getState().raise(id)
    leaveTo(id)
  }
  const close = (id: string) => {
    const i = shown.indexOf(id)
    go(shown[i + 1] ?? shown[i - 1])
    useWindows.getState().close(id)
  }

  const onTile = (e: KeyboardEvent, id: string) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return
    if (arrows.includes(e.key)) {
      const corners = shown.map((w) => tile(w)!.getBoundingClientRect())
      go(shown[neighbour(corners, shown.indexOf(id), e.key)])
    } else if (e.key === 'Delete' || (e.key === 'Backspace' && !filter)) close(id)
    // What is typed goes into the field, which gets the key when it has the focus.
    else if (e.key === 'Backspace' || (e.key.length === 1 && e.key !== ' ')) return field.current?.focus()
    else return
    e.preventDefault()
  }
  const onField = (e: KeyboardEvent) => {
    if (e.key === 'Enter' && current) raise(current)
    else if (e.key === 'ArrowDown' && current) go(current)
    else if (e.key === 'Escape' && filter) setFilter('')
    else return
    e.preventDefault()
    e.stopPropagation()
  }

  return (
    <section ref={page} className={css.page} aria-labelledby="overview-title" data-testid="overview" tabIndex={-1}>
      <header className={css.top}>
        <h2 id="overview-title">{count(Object.keys(windows).length, 'window')}</h2>
        {Object.keys(windows).length > 0 && (
          <input ref={field} type="search" className={css.filter} aria-label="Find a window" placeholder="Find a window" autoComplete="off" value={filter} onChange={(e) => setFilter(e.target.value)} onKeyDown={onField} />
        )}
        {!phone && (
          <p className={css.keys}>
            <kbd className={parts.kbd}>Enter</kbd> raises, <kbd className={parts.kbd}>Delete</kbd> closes
          </p>
        )}
        <button type="button" className={parts.icon} aria-label="Leave the overview" title="Leave (Esc)" onClick={hide}>
          <X size={17} aria-hidden />
        </button>
      </header>
      {shown.length === 0 ? (
        <p className={css.none}>{filter ? `No window is called “${filter.trim()}”.` : 'No window is open. Open an app, or say below what should happen.'}</p>
      ) : (
        <div className={css.tiles}>
          {groups.map((g) => (
            <section key={g.app} className={css.group} aria-label={nameOf(g.app)}>
              {g.windows.map((w, i) => (
                <Tile key={w.window} record={w} label={labels[w.window] ?? w.title} words={words.get(w.window) ?? ''} heading={i === 0 ? nameOf(g.app) : ''} many={g.windows.length}
                  front={w.window === active} reached={w.window === current} raise={raise} close={close} focused={setAt} press={onTile} />
              ))}
            </section>
          ))}
        </div>
      )}
    </section>
  )
}

interface TileProps {
  record: WindowRecord
  label: string
  words: string
  /** The app's name, over the first of its windows. */
  heading: string
  many: number
  front: boolean
  /** Whether the Tab key gets to it; the arrow keys get to the others. */
  reached: boolean
  raise: (id: string) => void
  close: (id: string) => void
  focused: (id: string) => void
  press: (e: KeyboardEvent, id: string) => void
}

function Tile({ record: { window: id, app, state }, label, words, heading, many, front, reached, raise, close, focused, press }: TileProps) {
  const apps = useApps((s) => s.apps)
  const Icon = apps[app]?.icon
  const minimised = state === 'minimised'
  return (
    <div className={css.cell}>
      {heading && (
        <h3>
          {heading} {many > 1 && <span>{many}</span>}
        </h3>
      )}
      <div className={css.tile} data-front={front} data-minimised={minimised} onKeyDown={(e) => press(e, id)}>
        <button type="button" className={css.raise} data-tile={id} tabIndex={reached ? 0 : -1} title={label} aria-describedby={`words-${id}`} aria-current={front} onFocus={() => focused(id)} onClick={() => raise(id)}>
          {Icon && <Icon size={15} strokeWidth={1.9} aria-hidden />}
          <b>{label}</b>
          {minimised && <small>minimised</small>}
        </button>
        <p id={`words-${id}`}>{words}</p>
        <button type="button" className={`${parts.icon} ${css.close}`} tabIndex={reached ? 0 : -1} aria-label={`Close ${label}`} title="Close (Delete)" onClick={() => close(id)}>
          <X size={14} aria-hidden />
        </button>
      </div>
    </div>
  )
}

const most = 160

/** What each window says first, read once from what it shows: nothing is asked for and nothing is laid out for it. */
function useFirstWords(windows: Record<string, WindowRecord>): Map<string, string> {
  const [words] = useState(
    () =>
      new Map(
        Object.values(windows).map(({ window: id, title }) => {
          const body = document.querySelector(`[data-window="${CSS.escape(id)}"] .${windowCss.body}`)
          return [id, body ? firstWords(body, title) : '']
        }),
      ),
  )
  return words
}

function firstWords(of: Element, title: string): string {
  // What can be done in a window says less of it than what is in it. A list's buttons are its contents.
  const unsaid = 'button:not(li button), select, textarea, svg, nav, .sr-only, [hidden]'
  const walk = document.createTreeWalker(of, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT, (n) => (n instanceof Element && n.matches(unsaid) ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT))
  let said = ''
  while (said.length < most && walk.nextNode()) {
    const text = walk.currentNode.nodeType === Node.TEXT_NODE ? (walk.currentNode.nodeValue ?? '').slice(0, most).replace(/\s+/g, ' ').trim() : ''
    // The title stands above it already.
    if (text && text !== title) said += (said && !/^[,.;:]/.test(text) ? ' ' : '') + text
  }
  return said.slice(0, most)
}
