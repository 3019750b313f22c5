import { useEffect, useId, useLayoutEffect, useRef, useState, type KeyboardEvent, type Ref } from 'react'
import { ChevronRight } from 'lucide-react'
import { ticks } from './axis'
import { KindIcon, StandingMark, standingWord } from './Kind'
import css from './Trace.module.css'
import { kindWords, numberOf, took, type Row } from './tree'

interface Props {
  ref: Ref<HTMLDivElement>
  rows: Row[]
  /** What the axis covers, and what it counts from. */
  extent: [number, number]
  origin: number
  now: number
  /** The chosen row's span. */
  at: string
  active: boolean
  choose: (id: string) => void
  /** Shows or hides what is below a row; null: everything that passes the filter shows. */
  toggle: ((id: string, open: boolean) => void) | null
  enter: () => void
  leave: () => void
}

/** Rows beyond what is seen, so that a quick scroll meets no gap. */
const beyond = 12

/**
 * The spans as rows of a tree, each with a bar at its time. Only the rows that are seen are in the page: a
 * trace has up to 5,000.
 */
export function Waterfall({ ref, rows, extent, origin, now, at, choose, toggle, enter, leave }: Props) {
  const own = useId() // the same run may show in several windows
  const scroller = useRef<HTMLDivElement>(null)
  const probe = useRef<HTMLDivElement>(null)
  const [seen, setSeen] = useState({ top: 0, height: 0, row: 28, width: 600 })
  const index = Math.max(0, rows.findIndex((r) => r.node.span.id === at))

  useLayoutEffect(() => {
    const el = scroller.current!
    const measure = () => setSeen((s) => ({ ...s, top: el.scrollTop, height: el.clientHeight, row: probe.current!.offsetHeight || 28, width: el.clientWidth }))
    measure()
    const watch = new ResizeObserver(measure)
    watch.observe(el)
    watch.observe(probe.current!)
    return () => watch.disconnect()
  }, [])

  // The row that the keyboard is at stays in sight: when it is another one, and when the details take their room.
  const before = useRef({ at, height: 0 })
  useEffect(() => {
    const same = before.current.at === at && before.current.height === seen.height
    before.current = { at, height: seen.height }
    if (same) return
    const el = scroller.current!
    const top = index * seen.row
    if (top < el.scrollTop) el.scrollTop = top
    else if (top + seen.row > el.scrollTop + el.clientHeight) el.scrollTop = top + seen.row - el.clientHeight
  }, [at, index, seen.row, seen.height])

  const from = Math.max(0, Math.floor(seen.top / seen.row) - beyond)
  const to = Math.min(rows.length, Math.ceil((seen.top + seen.height) / seen.row) + beyond)
  const shown = rows.slice(from, to).map((row, i) => ({ row, i: from + i }))
  if (index < from || index >= to) shown.push({ row: rows[index]!, i: index }) // what has the focus is always there

  const key = (e: KeyboardEvent) => {
    if (e.ctrlKey || e.altKey || e.metaKey) return
    const row = rows[index]!
    const go = (i: number) => choose(rows[Math.min(rows.length - 1, Math.max(0, i))]!.node.span.id)
    const page = Math.max(1, Math.floor(seen.height / seen.row) - 1)
    const does: Record<string, () => void> = {
      ArrowDown: () => go(index + 1),
      ArrowUp: () => go(index - 1),
      PageDown: () => go(index + page),
      PageUp: () => go(index - page),
      Home: () => go(0),
      End: () => go(rows.length - 1),
      ArrowRight: () => (row.open === false ? toggle?.(at, true) : row.open && go(index + 1)),
      ArrowLeft: () => (row.open && toggle ? toggle(at, false) : row.node.parent && choose(row.node.parent.span.id)),
      Enter: enter,
      Escape: leave,
    }
    const act = does[e.key]
    if (!act) return
    e.preventDefault()
    e.stopPropagation()
    act()
  }

  const span = extent[1] - extent[0]
  const marks = ticks(extent[0] - origin, extent[1] - origin, Math.max(2, Math.min(8, Math.floor(seen.width / 170))))
  const place = (time: number) => `${(100 * (time - extent[0])) / span}%`
  return (
    <div className={css.fall}>
      <div className={css.axis} aria-hidden data-testid="trace-axis">
        <span>Span</span>
        <div>
          {marks.map((t) => (
            <span key={t.at} style={{ left: place(origin + t.at) }}>
              {t.label}
            </span>
          ))}
        </div>
      </div>
      <div
        ref={(el) => {
          scroller.current = el
          if (typeof ref === 'function') ref(el)
          else if (ref) ref.current = el
        }}
        className={css.grid}
        role="treegrid"
        aria-label="What took time"
        aria-rowcount={rows.length}
        aria-activedescendant={own + at}
        tabIndex={0}
        onKeyDown={key}
        onScroll={(e) => setSeen({ ...seen, top: e.currentTarget.scrollTop })}
      >
        <div ref={probe} className={css.probe} aria-hidden />
        <div role="rowgroup" className={css.rows} style={{ height: rows.length * seen.row }}>
          {shown.map(({ row, i }) => (
            <Line key={row.node.span.id} own={own} row={row} i={i} top={i * seen.row} extent={extent} origin={origin} now={now} at={row.node.span.id === at} choose={choose} toggle={toggle} enter={enter} />
          ))}
        </div>
      </div>
    </div>
  )
}

interface LineProps extends Pick<Props, 'extent' | 'origin' | 'now' | 'choose' | 'toggle' | 'enter'> {
  /** What ids in the page begin with. */
  own: string
  row: Row
  i: number
  top: number
  at: boolean
}

function Line({ own, row, i, top, extent, origin, now, at, choose, toggle, enter }: LineProps) {
  const { node } = row
  const { span } = node
  const id = span.id
  const end = Number.isNaN(node.to) ? Math.max(now, node.from) : node.to
  const width = extent[1] - extent[0]
  const left = Math.min(100, Math.max(0, (100 * (node.from - extent[0])) / width))
  const right = Math.min(100, Math.max(0, (100 * (end - extent[0])) / width))
  const outside = end < extent[0] || node.from > extent[1]
  const time = took(node, now)
  const tokens = node.kind === 'model' ? tokensOf(row) : ''
  return (
    <div
      id={own + id}
      role="row"
      className={css.line}
      data-testid="span"
      data-kind={node.kind}
      data-standing={node.standing}
      data-at={at}
      data-faint={row.faint}
      aria-level={node.depth + 1}
      aria-rowindex={i + 1}
      aria-posinset={row.place}
      aria-setsize={row.of}
      aria-selected={at}
      aria-expanded={row.open ?? undefined}
      style={{ transform: `translateY(${top}px)` }}
      onClick={() => {
        choose(id)
        if (at) enter()
      }}
      onDoubleClick={enter}
    >
      <div role="gridcell" className={css.name} style={{ paddingLeft: 8 + Math.min(node.depth, 12) * 14 }}>
        <span
          className={css.fold}
          aria-hidden
          data-open={row.open === true}
          onClick={(e) => {
            if (row.open === null || !toggle) return
            e.stopPropagation()
            choose(id)
            toggle(id, !row.open)
          }}
        >
          {row.open !== null && <ChevronRight size={14} />}
        </span>
        <KindIcon kind={node.kind} />
        <span className={css.words}>
          <b>{kindWords[node.kind]}</b> {node.title}
        </span>
        {span.error && node.standing === 'failed' && <span className={css.error}>{span.error.replaceAll('_', ' ')}</span>}
        <StandingMark standing={node.standing} />
        {tokens && <span className={css.tokens}>{tokens}</span>}
      </div>
      <div role="gridcell" className={css.time} aria-label={`begins at ${seconds(node.from - origin)}, ${Number.isNaN(node.to) ? `goes on since ${time}` : `took ${time}`}, ${standingWord(node.standing)}`}>
        <span className={css.lane} aria-hidden>
          {!outside && <span className={css.bar} data-kind={node.kind} data-standing={node.standing} style={{ left: `${left}%`, width: `${right - left}%` }} />}
        </span>
        <span className={css.took} aria-hidden>
          {time}
        </span>
      </div>
    </div>
  )
}

const seconds = (ms: number) => `${(ms / 1000).toFixed(1)} seconds`

const few = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 })

/** A call's tokens in a few words. */
function tokensOf({ node: { span } }: Row): string {
  const cached = numberOf(span, 'gen_ai.usage.cache_read.input_tokens')
  return [`${few.format(numberOf(span, 'gen_ai.usage.input_tokens'))} in`, cached > 0 ? `${few.format(cached)} cached` : '', `${few.format(numberOf(span, 'gen_ai.usage.output_tokens'))} out`].filter(Boolean).join(', ')
}
