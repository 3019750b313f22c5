import { useEffect, useState } from 'react'
import parts from '../../parts/parts.module.css'
import { count, size } from '../../text/format'
import { closed, gone, useThings, type Job, type Told } from './bring'
import css from './Things.module.css'
import { named } from './words'

/** What is seen of bringing things in: where something that is dragged would go, how far it is, and what did not come in. */
export default function Things() {
  const { over, jobs, told, done } = useThings()
  const [job] = jobs
  useEffect(() => {
    // What is dragged out of the page, or let go with Escape, comes with no other event.
    const left = (e: DragEvent) => (e.type === 'dragend' || e.relatedTarget === null) && gone()
    window.addEventListener('dragleave', left)
    window.addEventListener('dragend', left)
    return () => {
      window.removeEventListener('dragleave', left)
      window.removeEventListener('dragend', left)
    }
  }, [])
  return (
    <>
      {over && (
        <section className={css.place} aria-label="Where it goes">
          <p className={css.over} data-no={over.no} data-testid="drop-here">
            {over.words}
          </p>
        </section>
      )}
      {job && <Progress key={job.id} job={job} waiting={jobs.length - 1} />}
      {told.map((t, i) => (
        <Rest key={i} told={t} />
      ))}
      <p className="sr-only" role="status">
        {job?.of ? `Bringing in ${count(job.of, 'file')}` : done}
      </p>
    </>
  )
}

/** How far it is; what takes no time is not mentioned. */
function Progress({ job, waiting }: { job: Job; waiting: number }) {
  const [late, setLate] = useState(false)
  useEffect(() => {
    const timer = setTimeout(() => setLate(true), 300)
    return () => clearTimeout(timer)
  }, [])
  if (!late) return null
  return (
    <section className={css.band} aria-label="Bringing in" data-testid="bringing-in">
      <div className={css.words}>
        {job.of === 0 ? 'Looking at what was dropped' : `Bringing in ${job.at.toLocaleString('en')} of ${job.of.toLocaleString('en')}`}
        {job.of > 0 && `, ${size(job.sent)} of ${size(job.bytes)}`}
        {waiting > 0 && `; ${waiting} more waiting`}
        <small>{job.name && named(job.name)}</small>
      </div>
      <button type="button" className={parts.ghost} onClick={() => job.stop.abort()}>
        Cancel
      </button>
      <progress className={css.bar} aria-label="How much is in" value={job.sent} max={Math.max(1, job.bytes)} />
    </section>
  )
}

function Rest({ told }: { told: Told }) {
  const { words, reasons, again } = told
  return (
    <section className={css.band} data-tone="warn" aria-label="What did not come in" data-testid="not-in">
      <p className={css.words} role="alert">
        {words}
      </p>
      {again && (
        <button type="button" className={parts.ghost} onClick={() => (closed(told), again())}>
          Bring in the rest
        </button>
      )}
      <button type="button" className={parts.ghost} onClick={() => closed(told)}>
        Close
      </button>
      {reasons.length > 0 && (
        <ul className={css.reasons} tabIndex={0} aria-label="Why">
          {reasons.map((r) => (
            <li key={r}>{r}</li>
          ))}
        </ul>
      )}
    </section>
  )
}
