import type { SaidView } from '../../stores/runs'
import { clock } from '../../text/format'
import css from './Run.module.css'

/** What its user said to a run: notes, and answers to what was asked. */
export function Said({ said }: { said: SaidView[] }) {
  if (said.length === 0) return null
  return (
    <section role="group" aria-label="You said" data-testid="said">
      <h2>You said</h2>
      <ol className={css.saidList}>
        {said.map((s, i) => (
          <li key={i}>
            <time dateTime={s.time}>{clock(s.time)}</time>
            <div>
              {s.asked && <q>{s.asked}</q>}
              <p>{s.text}</p>
              {s.byDefault && <small>Nobody answered in time: this is the default.</small>}
            </div>
          </li>
        ))}
      </ol>
    </section>
  )
}
