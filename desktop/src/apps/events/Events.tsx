import { useEffect, useMemo, useRef, useState } from 'react'
import { Check, Copy, ListFilter } from 'lucide-react'
import type { ActorKind, Event } from '../../contract/types'
import { kindOf } from '../../contract/types'
import parts from '../../parts/parts.module.css'
import { Skeleton } from '../../parts/Skeleton'
import { ask, tell } from '../../shell/intents'
import { useConnection } from '../../stores/connection'
import { useEvents } from '../../stores/events'
import { clockSeconds, count } from '../../text/format'
import { describe } from '../../text/describe'
import { kinds, matches } from './filter'
import css from './Events.module.css'

const page = 200
const most = 600

/** The log: what happened, newest at the bottom, with a filter, following the newest. */
export default function Events() {
  const events = useEvents((s) => s.events)
  const online = useConnection((s) => s.state === 'online')
  const [text, setText] = useState('')
  const [kind, setKind] = useState<ActorKind | 'all'>('all')
  const [noise, setNoise] = useState(false)
  const [follow, setFollow] = useState(true)
  const [open, setOpen] = useState<string | null>(null)
  const [asked, setAsked] = useState(false)
  const began = useRef(false)
  const list = useRef<HTMLDivElement>(null)
  const shown = useMemo(() => events.filter((e) => matches(e, { text, kind, noise })).slice(-most), [events, text, kind, noise])
  const oldest = events[0]?.sequence

  const older = async () => {
    const last = oldest ?? (await ask('log.read', { after: 0, limit: 1 })).last + 1
    const after = Math.max(0, last - 1 - page)
    if (last <= 1) return
    const got = await ask('log.read', { after, limit: last - 1 - after })
    useEvents.getState().prepend(got.events)
  }

  // The page only knows events since it was opened, so it requests some history first.
  useEffect(() => {
    if (!online || began.current) return
    began.current = true
    void (events.length < 50 ? older().catch(tell) : Promise.resolve()).then(() => setAsked(true))
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [online])

  useEffect(() => {
    const el = list.current
    if (follow && el) el.scrollTop = el.scrollHeight
  }, [shown, follow])

  return (
    <div className={css.page}>
      <header className={css.tools}>
        <label className={css.search}>
          <ListFilter size={14} aria-hidden />
          <input data-framed value={text} onChange={(e) => setText(e.target.value)} placeholder="Filter by type, text or id" aria-label="Filter" />
        </label>
        <select value={kind} onChange={(e) => setKind(e.target.value as ActorKind | 'all')} aria-label="Who">
          <option value="all">everyone</option>
          {kinds.map((r) => (
            <option key={r}>{r}</option>
          ))}
        </select>
        <label className={css.check}>
          <input type="checkbox" checked={noise} onChange={(e) => setNoise(e.target.checked)} /> windows
        </label>
        <label className={css.check}>
          <input type="checkbox" checked={follow} onChange={(e) => setFollow(e.target.checked)} /> follow
        </label>
      </header>
      <div
        className={css.list}
        ref={list}
        tabIndex={0}
        role="log"
        aria-label="Events"
        onScroll={(e) => {
          const el = e.currentTarget
          if (follow && el.scrollHeight - el.scrollTop - el.clientHeight > 80) setFollow(false)
        }}
      >
        {oldest !== undefined && oldest > 1 && (
          <button type="button" className={parts.ghost} onClick={() => void older().catch(tell)}>
            Load earlier
          </button>
        )}
        {shown.map((e) => (
          <Row key={e.sequence} e={e} open={open === e.id} toggle={() => setOpen(open === e.id ? null : e.id)} />
        ))}
        {shown.length === 0 && (events.length === 0 && !asked ? <Skeleton /> : <Empty filtered={events.length > 0} clear={() => (setText(''), setKind('all'))} />)}
      </div>
      <footer className={css.foot}>{count(shown.length, 'event')}</footer>
    </div>
  )
}

function Row({ e, open, toggle }: { e: Event; open: boolean; toggle: () => void }) {
  const said = describe(e)
  return (
    <div className={css.row} data-tone={said?.tone ?? 'plain'} data-testid="event">
      <button type="button" className={css.line} aria-expanded={open} onClick={toggle}>
        <time>{clockSeconds(e.time)}</time>
        <span className={css.seq}>{e.sequence}</span>
        <span className={css.kind} title={e.actor} data-kind={kindOf(e)}>
          {kindOf(e)}
        </span>
        <span className={css.type}>{e.type}</span>
        <span className={css.text}>{said?.detail}</span>
      </button>
      {open && <Detail e={e} />}
    </div>
  )
}

function Detail({ e }: { e: Event }) {
  const [copied, setCopied] = useState(false)
  const json = JSON.stringify(e, null, 2)
  return (
    <div className={css.detail}>
      <button
        type="button"
        className={parts.icon}
        aria-label="Copy as JSON"
        onClick={() => void navigator.clipboard.writeText(json).then(() => setCopied(true), tell)}
      >
        {copied ? <Check size={14} aria-hidden /> : <Copy size={14} aria-hidden />}
      </button>
      <pre tabIndex={0}>{json}</pre>
    </div>
  )
}

function Empty({ filtered, clear }: { filtered: boolean; clear: () => void }) {
  return (
    <div className={parts.empty}>
      <h2>{filtered ? 'Nothing matches' : 'Nothing has happened yet'}</h2>
      <p>{filtered ? 'Every event is still in the log.' : 'Everything this computer does is written down here, in order.'}</p>
      {filtered && (
        <button type="button" className={parts.button} onClick={clear}>
          Clear the filter
        </button>
      )}
    </div>
  )
}
