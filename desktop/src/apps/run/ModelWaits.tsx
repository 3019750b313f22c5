import { useState } from 'react'
import { Hourglass } from 'lucide-react'
import parts from '../../parts/parts.module.css'
import { act } from '../../shell/intents'
import { useConnection } from '../../stores/connection'
import type { RunView } from '../../stores/runs'
import { modelWaits } from '../../text/format'
import css from './Run.module.css'

/** What a run's loops wait for, and the way out: another model. */
export function ModelWaits({ run }: { run: RunView }) {
  const [model, setModel] = useState('')
  const readOnly = useConnection((s) => s.readOnly)
  return (
    <section role="group" className={css.waits} aria-label="Waiting for the model" data-testid="model-waits">
      {run.waits.map((w) => (
        <p key={w.task}>
          <Hourglass size={16} aria-hidden /> <span>Waiting for the model: {modelWaits(w)}</span>
        </p>
      ))}
      {!readOnly && (
        <form
          className={css.steer}
          onSubmit={(e) => {
            e.preventDefault()
            const name = model.trim()
            if (!name) return
            setModel('')
            act('model.switched', { model: name }, { run: run.run }).catch(() => setModel(name)) // the link told why
          }}
        >
          <input data-framed value={model} onChange={(e) => setModel(e.target.value)} placeholder="provider/model or an alias" aria-label="Another model for this run" />
          <button type="submit" className={parts.ghost} disabled={!model.trim()}>
            Switch model
          </button>
        </form>
      )}
    </section>
  )
}
