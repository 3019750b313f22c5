import { Mark } from '../parts/Mark'
import { useConnection } from '../stores/connection'
import { useRuns } from '../stores/runs'
import { clock, dayOf, oneLine } from '../text/format'
import { standing } from '../apps/run/standing'
import { openThing } from './intents'
import { usePromptBar } from './promptStore'
import css from './Shelf.module.css'
import { tries } from './tries'

// As many as are taken in at a glance.
const most = 5

/** What lies on a desktop without windows: the documents of the newest runs, and things to try. */
export default function Shelf() {
  const readOnly = useConnection((s) => s.readOnly)
  const fill = usePromptBar((s) => s.fill)
  const runs = useRuns((s) => s.runs)
  const recent = Object.values(runs).sort((a, b) => b.started.localeCompare(a.started)).slice(0, most)
  return (
    <div className={css.shelf} data-testid="shelf">
      {recent.length > 0 && (
        <section aria-labelledby="shelf-recent">
          <h2 id="shelf-recent">Where you left off</h2>
          <ul className={css.recent}>
            {recent.map((r) => {
              const { kind, text } = standing(r)
              return (
                <li key={r.run}>
                  <button type="button" className={css.run} data-on-desktop data-testid="shelf-run" onClick={() => openThing('run', r.run, r.prompt)}>
                    <Mark kind={kind} label={text} />
                    <span className={css.words}>{oneLine(r.prompt || r.objective || 'A run', 160)}</span>
                    <time dateTime={r.started}>{dayOf(r.started) === 'Today' ? clock(r.started) : dayOf(r.started)}</time>
                  </button>
                </li>
              )
            })}
          </ul>
        </section>
      )}
      {!readOnly && (
        <section aria-labelledby="shelf-tries">
          <h2 id="shelf-tries">{recent.length > 0 ? 'Something to try' : 'Say what should happen, or try one of these'}</h2>
          <ul className={css.tries}>
            {tries.map(({ icon: Icon, title, line }) => (
              <li key={title}>
                <button type="button" className={css.try} data-on-desktop data-testid="shelf-try" title={line} onClick={() => fill(line)}>
                  <Icon size={15} strokeWidth={1.8} aria-hidden />
                  {title}
                </button>
              </li>
            ))}
          </ul>
        </section>
      )}
    </div>
  )
}
