import { useEffect, useRef, useState, type ReactNode } from 'react'
import { AppWindow, Boxes, Cog } from 'lucide-react'
import type { ComputerHealth, Part, UnderWay } from '../../link/protocol'
import { Mark, type MarkKind } from '../../parts/Mark'
import parts from '../../parts/parts.module.css'
import { Skeleton } from '../../parts/Skeleton'
import { ask, openThing } from '../../shell/intents'
import { useConnection } from '../../stores/connection'
import { useEvents } from '../../stores/events'
import { useRuns } from '../../stores/runs'
import { clockSeconds, count, oneLine } from '../../text/format'
import { concerns, partWords, underWayWords, whatHappened } from './words'
import { Pacer } from './load'
import css from './Health.module.css'

/** How often it is asked where nothing is in the log, such as when a part runs again. */
const every = 5000

/** The computer's parts as the tree that keeps them going, what its runs wait for, and what happened to parts. */
export function Health({ label }: { label: string }) {
  const [health, setHealth] = useState<ComputerHealth | null>(null)
  const [fault, setFault] = useState('')
  const pacer = useRef<Pacer | null>(null)
  const online = useConnection((s) => s.state === 'online')
  const newest = useEvents((s) => s.events.findLast(concerns)?.sequence ?? 0)

  useEffect(() => {
    let stop = false
    const p = new Pacer(async () => {
      if (document.hidden) return
      try {
        const got = await ask('computer.health', {})
        if (stop) return
        setHealth(got)
        setFault('')
      } catch (e) {
        if (!stop) setFault(e instanceof Error ? e.message : String(e))
      }
    })
    pacer.current = p
    const timer = setInterval(() => p.note(), every)
    return () => {
      stop = true
      pacer.current = null
      clearInterval(timer)
      p.close()
    }
  }, [])
  useEffect(() => {
    if (online) pacer.current?.note()
  }, [online, newest])

  if (!health) {
    if (!fault) return <Skeleton />
    return (
      <div className={parts.empty} role="alert">
        <h2>How this computer is can’t be shown</h2>
        <p>{fault}</p>
        <button type="button" className={parts.button} onClick={() => pacer.current?.note()}>
          Try again
        </button>
      </div>
    )
  }
  return (
    <div className={css.page} tabIndex={0} role="region" aria-label={`Health in ${label}`} data-testid="health">
      {fault && <p role="alert">This is as it was last read: {fault}</p>}
      <section>
        <h2>What is kept running</h2>
        <ul className={css.tree}>
          <Branch icon={AppWindow} kind={online ? 'pass' : 'unknown'} name="Choir" state={online ? 'answers' : 'not connected'}>
            <Branch icon={Boxes} kind={health.state === 'broken' ? 'fail' : 'pass'} name={health.name || health.id} state={health.state === 'broken' ? 'its desktop is broken' : health.state} note={health.trouble?.reason ?? ''}>
              {(health.parts ?? []).map((p) => (
                <PartLine key={p.name} part={p} />
              ))}
            </Branch>
          </Branch>
        </ul>
      </section>
      <section>
        <h2>Runs under way</h2>
        {(health.runs ?? []).length === 0 && <p className={css.quiet}>None. A run shows here from its prompt to its report, with what it waits for.</p>}
        <ul className={css.under}>
          {(health.runs ?? []).map((r) => (
            <RunLine key={r.id} run={r} />
          ))}
        </ul>
      </section>
      <Happened />
    </div>
  )
}

function Branch({ icon: Icon, kind, name, state, note, children }: { icon: typeof Cog; kind: MarkKind; name: string; state: string; note?: string; children?: ReactNode }) {
  return (
    <li>
      <div className={css.line}>
        <Mark kind={kind} label="" />
        <Icon size={15} aria-hidden />
        <b>{name}</b>
        <span>{state}</span>
      </div>
      {note && <p className={css.note}>{note}</p>}
      {children && <ul>{children}</ul>}
    </li>
  )
}

const marks: Record<string, MarkKind> = { running: 'pass', restarting: 'active', waiting: 'open', failed: 'fail' }

function PartLine({ part }: { part: Part }) {
  return (
    <li data-testid="part" data-state={part.state}>
      <div className={css.line}>
        <Mark kind={marks[part.state] ?? 'unknown'} label="" />
        <Cog size={15} aria-hidden />
        <b>{part.name}</b>
        <span>{partWords(part)}</span>
        {part.restarts > 0 && <span className={css.restarts}>{count(part.restarts, 'restart')}</span>}
      </div>
      {part.reason && (
        <p className={css.note} data-state={part.state}>
          {part.reason} {part.hint}
        </p>
      )}
    </li>
  )
}

function RunLine({ run }: { run: UnderWay }) {
  const view = useRuns((s) => s.runs[run.id])
  const title = oneLine(view?.objective || view?.prompt || run.id, 120)
  return (
    <li data-testid="under-way">
      <div className={css.line}>
        <Mark kind={run.for ? 'open' : 'active'} label="" />
        <button type="button" onClick={() => openThing('run', run.id, title)}>
          {title}
        </button>
        <span>{underWayWords(run)}</span>
      </div>
      {run.reason && <p className={css.note}>{run.reason}</p>}
    </li>
  )
}

function Happened() {
  const events = useEvents((s) => s.events)
  const list = events.filter((e) => whatHappened(e) !== '').slice(-8).reverse()
  return (
    <section>
      <h2>What happened lately</h2>
      {list.length === 0 && <p className={css.quiet}>No part has failed since this page was opened.</p>}
      <ul className={css.happened}>
        {list.map((e) => (
          <li key={e.id}>
            <time>{clockSeconds(e.time)}</time> {whatHappened(e)}
          </li>
        ))}
      </ul>
    </section>
  )
}
