import { useEffect, useMemo, useRef, useState } from 'react'
import { ArrowLeft, Check, Copy, FileText, ListFilter, ZoomOut } from 'lucide-react'
import type { Trace } from '../../link/protocol'
import parts from '../../parts/parts.module.css'
import { Pill } from '../../parts/Mark'
import { Skeleton } from '../../parts/Skeleton'
import { ask, openThing, tell } from '../../shell/intents'
import { useConnection } from '../../stores/connection'
import { ended, useRuns } from '../../stores/runs'
import { count, duration, money, oneLine } from '../../text/format'
import { standing } from '../run/standing'
import { Details } from './Details'
import { Pacer, readTrace } from './load'
import css from './Trace.module.css'
import { extentOf, kindWords, noFilter, filters, rowsOf, totalsOf, treeOf, type Filter, type Kind, type Node, type Totals } from './tree'
import { Waterfall } from './Waterfall'

/** The trace of one run, live while it goes on. */
export function RunTrace({ label, run, active, back }: { label: string; run: string; active: boolean; back: () => void }) {
  const { trace, fault, again } = useTrace(run)
  const view = useRuns((s) => s.runs[run])
  const [filter, setFilter] = useState<Filter>(noFilter)
  const [closed, setClosed] = useState<ReadonlySet<string>>(new Set())
  const [at, setAt] = useState('')
  const [open, setOpen] = useState(false)
  const [entered, setEntered] = useState(0)
  const [zoom, setZoom] = useState<[number, number] | null>(null)
  const grid = useRef<HTMLDivElement>(null)
  const head = useRef<HTMLHeadingElement>(null)
  const now = useNow(trace !== null && !trace.ended)
  const roots = useMemo(() => (trace ? treeOf(trace) : []), [trace])
  const rows = useMemo(() => rowsOf(roots, closed, filter), [roots, closed, filter])
  const totals = useMemo(() => totalsOf(roots, now), [roots, now])
  const whole = useMemo(() => extentOf(roots, now), [roots, now])

  // The focus goes to the details when they are entered, and stays with the rows while these are gone through.
  useEffect(() => {
    if (entered > 0) head.current?.focus()
  }, [entered])

  if (!trace) {
    if (!fault) return <Skeleton />
    return (
      <section className={css.trace} aria-label={`What took time in ${label}`}>
        <div className={parts.empty} role="alert">
          <h2>This run’s trace can’t be shown</h2>
          <p>{fault}</p>
          <button type="button" className={parts.button} onClick={again}>
            Try again
          </button>
        </div>
      </section>
    )
  }
  const chosen = rows.find((r) => r.node.span.id === at) ?? rows[0]
  const state = view && standing(view)
  const toggle = (id: string, to: boolean) => {
    const next = new Set(closed)
    if (to) next.delete(id)
    else next.add(id)
    setClosed(next)
  }
  const enter = () => {
    setOpen(true)
    setEntered(entered + 1)
  }
  const leave = () => {
    setOpen(false)
    grid.current?.focus()
  }
  const select = (n: Node) => {
    setAt(n.span.id)
    const shut = new Set(closed)
    for (let up = n.parent; up; up = up.parent) shut.delete(up.span.id)
    setClosed(shut)
  }
  return (
    <section className={css.trace} aria-label={`What took time in ${label}`} data-testid="trace" data-run={run} data-ended={trace.ended} data-open={open}>
      <header className={css.head}>
        <div className={css.title}>
          <button type="button" className={`${parts.ghost} ${css.back}`} onClick={back}>
            <ArrowLeft size={14} aria-hidden /> All runs
          </button>
          <h2>{oneLine(view?.objective || view?.prompt || 'A run', 140)}</h2>
          {state && <Pill kind={state.kind} text={state.text} />}
          <span className={css.gap} />
          <button type="button" className={parts.ghost} onClick={() => openThing('run', run, view?.prompt || 'Run')}>
            <FileText size={14} aria-hidden /> Run
          </button>
          <CopyButton text={() => JSON.stringify(trace, null, 2)} label="Copy as JSON" />
        </div>
        <Sums t={totals} />
        {trace.dropped ? (
          <p className={css.dropped} role="status">
            {count(trace.dropped, 'span')} came after the first {trace.spans.length.toLocaleString('en')}, which are all that a trace keeps. The events of the run have what happened.
          </p>
        ) : null}
        {fault && (
          <p className={css.dropped} role="alert">
            This is as it was last read: {fault}{' '}
            <button type="button" className={parts.button} onClick={again}>
              Try again
            </button>
          </p>
        )}
      </header>
      <Tools label={label} filter={filter} set={setFilter} zoomed={zoom !== null} whole={() => setZoom(null)} />
      {rows.length === 0 ? (
        <div className={parts.empty}>
          <h2>Nothing matches</h2>
          <p>The filter looks at names, kinds, ids and attributes; what is in arguments and results it does not know.</p>
          <button type="button" className={parts.button} onClick={() => setFilter(noFilter)}>
            Clear the filter
          </button>
        </div>
      ) : (
        <Waterfall ref={grid} rows={rows} extent={zoom ?? whole} origin={whole[0]} now={now} at={chosen?.node.span.id ?? ''} active={active} choose={setAt} toggle={filters(filter) ? null : toggle} enter={enter} leave={leave} />
      )}
      {open && chosen && (
        <Details key={chosen.node.span.id} label={label} head={head} node={chosen.node} run={run} origin={whole[0]} now={now} close={leave} select={select} zoom={(n) => setZoom([n.from, Math.max(n.from + 1, Number.isNaN(n.to) ? now : n.to)])} />
      )}
      <footer className={css.foot}>
        {filters(filter) ? `${count(rows.filter((r) => !r.faint).length, 'span')} of ${trace.spans.length.toLocaleString('en')}` : count(trace.spans.length, 'span')}
        {trace.ended ? '' : ', live'}
      </footer>
    </section>
  )
}

/** A run's trace, read again when something has happened in it while anybody looks. */
function useTrace(run: string): { trace: Trace | null; fault: string; again: () => void } {
  const [trace, setTrace] = useState<Trace | null>(null)
  const [fault, setFault] = useState('')
  const pacer = useRef<Pacer | null>(null)
  const online = useConnection((s) => s.state === 'online')
  const last = useRuns((s) => s.runs[run]?.last ?? 0)
  const over = useRuns((s) => (s.runs[run] ? ended(s.runs[run].status) : false))
  const done = trace?.ended ?? false
  useEffect(() => {
    let stop = false
    const p = new Pacer(async () => {
      if (document.hidden) return
      try {
        const got = await readTrace((after) => ask('run.trace', { run, after }, 30_000))
        if (stop) return
        setTrace(got)
        setFault('')
      } catch (e) {
        if (!stop) setFault(e instanceof Error ? e.message : String(e))
      }
    })
    pacer.current = p
    const seen = () => p.note()
    document.addEventListener('visibilitychange', seen)
    return () => {
      stop = true
      pacer.current = null
      document.removeEventListener('visibilitychange', seen)
      p.close()
    }
  }, [run])
  useEffect(() => {
    if (online && !done) pacer.current?.note()
  }, [run, online, last, over, done])
  return { trace, fault, again: () => pacer.current?.note() }
}

/** The time, each second while something goes on. */
function useNow(goesOn: boolean): number {
  const [now, setNow] = useState(() => Date.now())
  useEffect(() => {
    if (!goesOn) return
    const timer = setInterval(() => !document.hidden && setNow(Date.now()), 1000)
    return () => clearInterval(timer)
  }, [goesOn])
  return now
}

function Sums({ t }: { t: Totals }) {
  const share = t.tokensIn > 0 ? Math.round((100 * t.cached) / t.tokensIn) : 0
  const facts: [string, string][] = [
    ['Time', duration(t.ms)],
    ['Tokens', `${t.tokensIn.toLocaleString('en')} in, ${t.tokensOut.toLocaleString('en')} out`],
    ['Cached', `${share} %`],
    ['Cost', money(t.cost)],
    ['Calls', `${count(t.models, 'model')}, ${count(t.tools, 'tool')}`],
  ]
  if (t.waitedMs > 0) facts.push(['Waiting', duration(t.waitedMs)])
  if (t.stoodMs > 0) facts.push(['Stood still', duration(t.stoodMs)])
  if (t.failed > 0) facts.push(['Failed', String(t.failed)])
  return (
    <dl className={css.sums} data-testid="trace-totals">
      {facts.map(([what, said]) => (
        <div key={what} data-what={what}>
          <dt>{what}</dt>
          <dd>{said}</dd>
        </div>
      ))}
    </dl>
  )
}

function Tools({ label, filter, set, zoomed, whole }: { label: string; filter: Filter; set: (f: Filter) => void; zoomed: boolean; whole: () => void }) {
  return (
    <div className={css.tools} role="search" aria-label={`Filter ${label}`}>
      <label className={css.search}>
        <ListFilter size={14} aria-hidden />
        <input data-framed value={filter.text} onChange={(e) => set({ ...filter, text: e.target.value })} placeholder="Filter by name, model or id" aria-label="Filter" />
      </label>
      <select value={filter.kind} onChange={(e) => set({ ...filter, kind: e.target.value as Kind | 'all' })} aria-label="Kind">
        <option value="all">every kind</option>
        {(Object.keys(kindWords) as Kind[]).map((k) => (
          <option key={k} value={k}>
            {kindWords[k]}
          </option>
        ))}
      </select>
      <label className={css.check}>
        <input type="checkbox" checked={filter.failed} onChange={(e) => set({ ...filter, failed: e.target.checked })} /> only failed
      </label>
      {zoomed && (
        <button type="button" className={parts.ghost} onClick={whole}>
          <ZoomOut size={14} aria-hidden /> Whole run
        </button>
      )}
    </div>
  )
}

/** Copies a text, and says that it did. */
export function CopyButton({ text, label }: { text: () => string; label: string }) {
  const [copied, setCopied] = useState(false)
  useEffect(() => {
    if (!copied) return
    const timer = setTimeout(() => setCopied(false), 2000)
    return () => clearTimeout(timer)
  }, [copied])
  return (
    <button type="button" className={parts.ghost} onClick={() => void navigator.clipboard.writeText(text()).then(() => setCopied(true), tell)}>
      {copied ? <Check size={14} aria-hidden /> : <Copy size={14} aria-hidden />} {copied ? 'Copied' : label}
    </button>
  )
}
