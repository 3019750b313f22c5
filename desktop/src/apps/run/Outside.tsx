import { useState } from 'react'
import { ArrowUpRight, ChevronDown, Globe } from 'lucide-react'
import { Pill, type MarkKind } from '../../parts/Mark'
import parts from '../../parts/parts.module.css'
import { newID } from '../../contract/id'
import { consoleThere, openOnConsole } from '../../link/console'
import { ask, follow, openThing, tell } from '../../shell/intents'
import { useConnection } from '../../stores/connection'
import { clockSeconds, count, oneLine } from '../../text/format'
import type { EffectView } from './effects'
import css from './Outside.module.css'
import { sentWords } from './sent'

const stands: Record<EffectView['outcome'], { kind: MarkKind; text: string }> = {
  open: { kind: 'active', text: 'under way' }, done: { kind: 'pass', text: 'done' }, failed: { kind: 'fail', text: 'failed' }, unknown: { kind: 'unknown', text: 'unknown' },
}

/** What a run changed outside of the computer, or may have: no checkpoint undoes it. */
export function Outside({ effects, over }: { effects: EffectView[]; over: boolean }) {
  const unknown = effects.filter((e) => e.outcome === 'unknown').length
  return (
    <section role="group" aria-label="Outside" data-testid="outside">
      <h2>Outside</h2>
      <p className={css.about}>
        {unknown > 0 ? `${count(unknown, 'call')} of ${effects.length} may have happened; nobody knows yet.` : 'Going back to a checkpoint does not take these back.'}
      </p>
      {[...effects.filter((e) => e.outcome === 'unknown'), ...effects.filter((e) => e.outcome !== 'unknown')].map((e) => (
        <Effect key={e.effect} effect={e} over={over} />
      ))}
    </section>
  )
}

function Effect({ effect, over }: { effect: EffectView; over: boolean }) {
  const [open, setOpen] = useState(false)
  const { kind, text } = stands[effect.outcome]
  return (
    <div className={css.effect} data-outcome={effect.outcome} data-testid="effect">
      <button type="button" className={css.head} aria-expanded={open} onClick={() => setOpen(!open)}>
        <Globe size={15} strokeWidth={1.8} aria-hidden />
        <span className={css.target}>{effect.target}</span>
        <span className={css.what}>{oneLine(sentWords(effect), 120)}</span>
        <span className={css.time}>{clockSeconds(effect.time)}</span>
        <Pill kind={kind} text={text} />
        <ChevronDown size={14} aria-hidden data-open={open} />
      </button>
      {effect.outcome === 'unknown' && <Unknown effect={effect} />}
      {effect.found && (
        <p className={css.found}>
          {effect.found === 'done' ? 'Somebody looked: it happened.' : 'Somebody looked: it did not happen.'}
          {effect.note && ` “${effect.note}”`}
        </p>
      )}
      {open && <Whole effect={effect} over={over} />}
    </div>
  )
}

/** Agents write this page, so what happened is not said here: it lets a call be made again. */
function Unknown({ effect }: { effect: EffectView }) {
  return (
    <div className={css.unknown}>
      <p>This may have happened. Look there, then say what you found.</p>
      {consoleThere ? (
        <button type="button" className={parts.button} onClick={() => openOnConsole('inbox', effect.effect)}>
          Say it on the console <ArrowUpRight size={14} aria-hidden />
        </button>
      ) : (
        <code>choir effects resolve {effect.effect}</code>
      )}
    </div>
  )
}

function Whole({ effect, over }: { effect: EffectView; over: boolean }) {
  const [texts, setTexts] = useState<{ sent: string; answer: string }>()
  const [busy, setBusy] = useState(false)
  const online = useConnection((s) => s.state === 'online')
  const whole = () => {
    setBusy(true)
    ask('effect.show', { effect: effect.effect })
      .then((e) => setTexts({ sent: e.arguments ?? '', answer: e.answered ?? '' }), tell)
      .finally(() => setBusy(false))
  }
  const answer = texts?.answer ?? effect.detail
  return (
    <div className={css.body}>
      <h3>Sent</h3>
      <pre tabIndex={0}>{(texts?.sent ?? effect.what) || 'Nothing beside the call itself.'}</pre>
      <h3>{effect.outcome === 'unknown' ? 'Why nobody knows' : 'Answer'}</h3>
      <pre tabIndex={0}>{answer || (effect.outcome === 'open' ? 'None yet.' : 'None.')}</pre>
      <dl>
        <dt>Effect</dt>
        <dd>{effect.effect}</dd>
        {effect.key && (
          <>
            <dt>Idempotency key</dt>
            <dd>{effect.key}</dd>
          </>
        )}
        {effect.again && (
          <>
            <dt>Once more</dt>
            <dd>{effect.again}</dd>
          </>
        )}
      </dl>
      <footer>
        {!texts && (
          <button type="button" className={parts.ghost} disabled={busy || !online} onClick={whole}>
            Show all of it
          </button>
        )}
        {effect.outcome === 'done' && over && <Compensate effect={effect.effect} />}
      </footer>
    </div>
  )
}

/** Asks a run that continues this one to undo it there. */
function Compensate({ effect }: { effect: string }) {
  const [asked, setAsked] = useState(false)
  const [words, setWords] = useState('')
  const [id] = useState(newID)
  const [busy, setBusy] = useState(false)
  const blocked = useConnection((s) => s.readOnly || s.state !== 'online')
  if (!asked) {
    return (
      <button type="button" className={parts.ghost} disabled={blocked} onClick={() => setAsked(true)}>
        Have it undone there…
      </button>
    )
  }
  const begin = () => {
    setBusy(true)
    ask('effect.compensate', { effect, id, ...(words.trim() ? { words: words.trim() } : {}) }).then(
      ({ run }) => {
        if (!run) return
        follow(run)
        openThing('run', run, 'Undo it outside')
      },
      (e: unknown) => (tell(e), setBusy(false)),
    )
  }
  return (
    <form
      className={css.undo}
      onSubmit={(e) => {
        e.preventDefault()
        begin()
      }}
    >
      <p>A new run looks how it stands there and undoes it, if the service can.</p>
      <input data-framed data-things value={words} maxLength={8000} disabled={busy} onChange={(e) => setWords(e.target.value)} placeholder="What else it should know (optional)" aria-label="What else it should know" />
      <button type="submit" className={parts.primary} disabled={busy || blocked}>
        Have it undone
      </button>
    </form>
  )
}
