import { useEffect, useRef, useState } from 'react'
import { Undo2 } from 'lucide-react'
import type { Checkpoint, Restored } from '../../link/protocol'
import parts from '../../parts/parts.module.css'
import { ask, tell } from '../../shell/intents'
import { useToasts } from '../../stores/toasts'
import { clock, count, dayOf } from '../../text/format'
import { sayDay } from './groups'
import css from './TimeTravel.module.css'
import { restoreWords, undoneWords } from './words'

/** What a restore returns to: a checkpoint, whole or one path of it, the state without a run's work, or the state before the last thing that was done. */
export type Target = { checkpoint: Checkpoint; path?: string } | { run: string } | 'last'

/** What the desktop is made of: its source and its theme. */
const desktop = ['choiros', 'artifacts/system/theme.json']

function look(target: Target, dry_run: boolean, onlyDesktop: boolean): Promise<Restored> {
  const patience = dry_run ? 60_000 : 120_000
  if (target === 'last') return ask('checkpoint.undo', { dry_run }, patience)
  if ('run' in target) return ask('run.undo', { run: target.run, dry_run }, patience)
  const paths = target.path !== undefined ? [target.path] : onlyDesktop ? desktop : []
  return ask('checkpoint.restore', { to: target.checkpoint.commit, ...(paths.length > 0 && { paths }), dry_run }, patience)
}

function heading(target: Target, plan: Restored | null): string {
  if (target === 'last') return plan?.undone ? `Undo ${undoneWords(plan.undone)}` : 'Undo the last thing'
  if ('run' in target) return 'Undo what this run changed'
  const then = `${sayDay(dayOf(target.checkpoint.time))}, ${clock(target.checkpoint.time)}`
  return target.path === undefined ? `Restore: back to ${then}` : `Bring back ${target.path} as it was ${then}`
}

/** Says what a restore would do, and does it only when it is confirmed. Give it a React key per target. */
export function Restore({ target, close, byKey = false }: { target: Target; close: (done: boolean) => void; byKey?: boolean }) {
  const [plan, setPlan] = useState<Restored | null>(null)
  const [fault, setFault] = useState('')
  const [busy, setBusy] = useState(false)
  const [onlyDesktop, setOnlyDesktop] = useState(false)
  const first = useRef(target)
  const goes = useRef<HTMLButtonElement>(null)
  const verb = typeof target === 'object' && 'checkpoint' in target ? (target.path === undefined ? 'Restore' : 'Bring back') : 'Undo'
  useEffect(() => {
    let stop = false
    look(first.current, true, onlyDesktop).then(
      (p) => !stop && setPlan(p),
      (e: unknown) => !stop && setFault(e instanceof Error ? e.message : String(e)),
    )
    return () => {
      stop = true
    }
  }, [onlyDesktop])
  const narrow = (to: boolean) => {
    setPlan(null)
    setFault('')
    setOnlyDesktop(to)
  }

  // Who came by a key goes on by one; nobody else's focus is taken.
  useEffect(() => {
    if (plan && byKey) goes.current?.focus()
  }, [plan, byKey])

  const go = async () => {
    setBusy(true)
    try {
      const done = await look(target, false, onlyDesktop)
      if (done.kept.length > 0) useToasts.getState().say('warn', `${count(done.kept.length, 'path')} stayed as ${done.kept.length === 1 ? 'it is' : 'they are'}`, done.kept.slice(0, 3).map((k) => `${k.path}: ${k.reason}`).join('; '))
      close(true)
    } catch (e) {
      tell(e)
      setBusy(false)
    }
  }

  return (
    <section className={css.restore} aria-label={verb} data-testid="restore-plan">
      <div>
        <h2>{heading(target, plan)}</h2>
        {verb === 'Restore' && (
          <label className={css.narrow}>
            <input type="checkbox" checked={onlyDesktop} disabled={busy} onChange={(e) => narrow(e.target.checked)} /> Only the desktop: its source and its theme
          </label>
        )}
        {fault && <p role="alert">{fault}</p>}
        {!plan && !fault && <p>Looking at what would change…</p>}
        {plan && (
          <ul>
            {restoreWords(plan.changes, plan.kept, plan.unkept).map((w) => (
              <li key={w}>{w}</li>
            ))}
          </ul>
        )}
      </div>
      <div className={css.actions}>
        <button type="button" className={parts.ghost} onClick={() => close(false)}>
          Keep things as they are
        </button>
        <button ref={goes} type="button" className={parts.primary} data-testid="restore-go" disabled={!plan || plan.changes.length === 0 || busy} onClick={() => void go()}>
          <Undo2 size={14} aria-hidden /> {busy ? 'Going back…' : verb}
        </button>
      </div>
    </section>
  )
}
