import { useEffect, useState } from 'react'
import { Activity, ChartGantt, HeartPulse } from 'lucide-react'
import { Mark } from '../../parts/Mark'
import parts from '../../parts/parts.module.css'
import { Skeleton } from '../../parts/Skeleton'
import { useConnection } from '../../stores/connection'
import { ended, useRuns, type RunView } from '../../stores/runs'
import { useLabel } from '../../stores/windows'
import { clock, dayOf, duration, money, oneLine } from '../../text/format'
import { standing } from '../run/standing'
import type { AppProps } from '../types'
import { Health } from './Health'
import { RunTrace } from './RunTrace'
import css from './Trace.module.css'

/** What took time in a run, and how the computer's parts are. */
export default function Trace({ window, props, active }: AppProps) {
  const label = useLabel(window)
  const given = props.trace ?? ''
  const [part, setPart] = useState<'runs' | 'health'>('runs')
  const [chosen, setChosen] = useState(given)
  // On a phone either the list shows or the run that was chosen from it.
  const [detail, setDetail] = useState(given !== '')
  const runs = useRuns((s) => s.runs)
  const loaded = useConnection((s) => s.loaded)
  const list = Object.values(runs).sort((a, b) => b.started.localeCompare(a.started))
  const run = chosen || list[0]?.run || ''

  return (
    <div className={css.page}>
      <nav className={css.parts} aria-label={`Parts of ${label}`}>
        <button type="button" aria-current={part === 'runs' ? 'page' : undefined} onClick={() => setPart('runs')}>
          <Activity size={14} aria-hidden /> Runs
        </button>
        <button type="button" aria-current={part === 'health' ? 'page' : undefined} data-testid="trace-health" onClick={() => setPart('health')}>
          <HeartPulse size={14} aria-hidden /> Health
        </button>
      </nav>
      {part === 'health' ? (
        <Health label={label} />
      ) : !loaded ? (
        <Skeleton />
      ) : run === '' ? (
        <div className={parts.empty}>
          <ChartGantt size={28} strokeWidth={1.5} aria-hidden />
          <h2>No run yet</h2>
          <p>Type what you want below. Each run then shows here what took its time: its tasks, the calls of models with their tokens and cost, the tools with what went in and came out.</p>
        </div>
      ) : (
        <div className={css.runs} data-detail={detail}>
          <RunList
            label={label}
            list={list}
            chosen={run}
            choose={(id) => {
              setChosen(id)
              setDetail(true)
            }}
          />
          <RunTrace key={run} label={label} run={run} active={active} back={() => setDetail(false)} />
        </div>
      )}
    </div>
  )
}

function RunList({ label, list, chosen, choose }: { label: string; list: RunView[]; chosen: string; choose: (run: string) => void }) {
  const goesOn = list.some((r) => !ended(r.status))
  const [now, setNow] = useState(() => Date.now())
  useEffect(() => {
    if (!goesOn) return
    const timer = setInterval(() => setNow(Date.now()), 1000)
    return () => clearInterval(timer)
  }, [goesOn])
  return (
    <nav className={css.list} aria-label={`Runs in ${label}`}>
      {list.map((r, i) => {
        const { kind, text } = standing(r)
        const day = dayOf(r.started, now)
        const ms = (r.ended ? Date.parse(r.ended) : now) - Date.parse(r.started)
        return (
          <div key={r.run}>
            {(i === 0 || dayOf(list[i - 1]!.started, now) !== day) && <h2>{day}</h2>}
            <button type="button" className={css.run} data-testid="trace-run" data-run={r.run} aria-current={r.run === chosen} onClick={() => choose(r.run)}>
              <Mark kind={kind} label={text} />
              <span>{oneLine(r.objective || r.prompt || 'A run', 120)}</span>
              <small>
                {clock(r.started)}, {Number.isFinite(ms) ? duration(Math.max(0, ms)) : ''}, {money(r.usage?.cost_usd ?? 0)}
              </small>
            </button>
          </div>
        )
      })}
    </nav>
  )
}
