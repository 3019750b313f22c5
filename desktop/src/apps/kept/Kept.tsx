import { useEffect, useState } from 'react'
import { CornerDownRight } from 'lucide-react'
import type { Fact } from '../../link/services'
import parts from '../../parts/parts.module.css'
import { Skeleton } from '../../parts/Skeleton'
import { ask, openThing } from '../../shell/intents'
import { useConnection } from '../../stores/connection'
import { useEvents } from '../../stores/events'
import { useRuns } from '../../stores/runs'
import { clock, count, dayOf } from '../../text/format'
import { following, sayer } from './follows'
import css from './Kept.module.css'

/** What the computer was told to keep: all later runs are told it. Agents write this page, so it only shows it. */
export default function Kept() {
  const online = useConnection((s) => s.state === 'online')
  const changed = useEvents((s) => s.events.findLast((e) => e.type.startsWith('memory.'))?.sequence ?? 0)
  const [facts, setFacts] = useState<Fact[]>()
  const [fault, setFault] = useState('')
  useEffect(() => {
    if (!online) return
    let stop = false
    ask('memory.list', { limit: 100 }).then(
      (l) => !stop && (setFacts(l.facts), setFault('')),
      (e: unknown) => !stop && setFault(e instanceof Error ? e.message : String(e)),
    )
    return () => {
      stop = true
    }
  }, [online, changed])
  if (!facts && !fault) return <Skeleton />
  if (!facts || facts.length === 0) {
    return (
      <div className={parts.empty} role={fault ? 'alert' : undefined}>
        <h2>{fault ? 'What is kept can’t be shown' : 'Nothing is kept yet'}</h2>
        <p>{fault || 'Say in a prompt what every later run should know, such as “remember: always indent with tabs”.'}</p>
      </div>
    )
  }
  return (
    <div className={css.page} tabIndex={0} role="region" aria-label="What is kept" data-testid="kept">
      <p className={css.about}>All later runs are told this, word for word.</p>
      {fault && <p role="alert">It may be out of date: {fault}</p>}
      <ul className={css.list}>
        {facts.map((f) => (
          <Row key={f.id} fact={f} facts={facts} />
        ))}
      </ul>
    </div>
  )
}

function Row({ fact, facts }: { fact: Fact; facts: Fact[] }) {
  const [open, setOpen] = useState(false)
  const prompt = useRuns((s) => (fact.run ? s.runs[fact.run]?.prompt : undefined))
  const gone = following(facts, fact.id)
  const sources = facts.filter((f) => fact.from?.includes(f.id))
  return (
    <li data-testid="fact">
      <p className={css.text}>{fact.text}</p>
      {sources.map((f) => (
        <p key={f.id} className={css.from}>
          <CornerDownRight size={13} aria-hidden /> follows from “{f.text}”
        </p>
      ))}
      <p className={css.facts}>
        {sayer(fact)}, {dayOf(fact.time)} at {clock(fact.time)}
        {fact.run && (
          <button type="button" className={css.link} onClick={() => openThing('run', fact.run!, prompt || 'Run')}>
            Open the run
          </button>
        )}
        <button type="button" className={css.link} aria-expanded={open} onClick={() => setOpen(!open)}>
          Forget…
        </button>
      </p>
      {open && (
        <div className={css.forget}>
          <p>{gone.length > 0 ? `With it goes what follows from it, ${count(gone.length, 'fact')}:` : 'Nothing else follows from it.'}</p>
          {gone.length > 0 && (
            <ul>
              {gone.map((f) => (
                <li key={f.id}>{f.text}</li>
              ))}
            </ul>
          )}
          <p>Agents write this page, so it can’t have anything forgotten. The console can: <em>What is kept</em> in its menu, at the top right. So can a terminal of yours, and an undo keeps it again:</p>
          <pre tabIndex={0}>choir forget {fact.id}</pre>
        </div>
      )}
    </li>
  )
}
