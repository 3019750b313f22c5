import { useEffect, useMemo, useRef, useState } from 'react'
import { ChartGantt, FileText, GitPullRequestArrow, ListChecks, Pause, Play, RotateCcw, Square, Undo2 } from 'lucide-react'
import { Markdown } from '../../parts/Markdown'
import { Mark, Pill } from '../../parts/Mark'
import parts from '../../parts/parts.module.css'
import { Skeleton } from '../../parts/Skeleton'
import { act, ask, follow, openApp, openThing, submitPrompt, tell } from '../../shell/intents'
import { Restore } from '../timetravel/Restore'
import { useConnection } from '../../stores/connection'
import { useDocuments } from '../../stores/documents'
import { useReviews } from '../../stores/reviews'
import { changed, discarded, ended, outcome, useRuns, type RunView } from '../../stores/runs'
import { front, useWindows } from '../../stores/windows'
import { clock, count, duration, money, oneLine } from '../../text/format'
import type { AppProps } from '../types'
import { effectsAfter } from './effects'
import { Asked } from './Asked'
import { AsksConsole } from './AsksConsole'
import { Denied, Evidence } from './Evidence'
import { Proposals, useOpenProposals } from './Proposals'
import proposalsCss from './Proposals.module.css'
import { ModelWaits } from './ModelWaits'
import { Outside } from './Outside'
import { useHere } from './here'
import { QuestionCard } from './QuestionCard'
import { Review } from './Review'
import css from './Run.module.css'
import { Said } from './Said'
import { nowWords, sameWords, saysAlready, withoutNotice } from './sentences'
import { planStands, standing } from './standing'
import { makeWhole } from './whole'

/** A run's page: its living document, plan, evidence, answer and cost. */
export default function Run({ props }: AppProps) {
  const id = props.run ?? ''
  const run = useRuns((s) => s.runs[id])
  const online = useConnection((s) => s.state === 'online')
  const [view, setView] = useState<'run' | 'document'>('run')
  const [fault, setFault] = useState('')

  const proposals = useOpenProposals(run?.document)

  const whole = run?.whole ?? false
  useEffect(() => {
    if (!online || whole || !id) return
    let stop = false
    makeWhole(id, (after) => ask('run.get', { run: id, after, limit: 500 }), () => stop).then(
      () => setFault(''),
      (e: unknown) => !stop && setFault(e instanceof Error ? e.message : String(e)),
    )
    return () => {
      stop = true
    }
  }, [id, online, whole])

  const goesOn = run ? !ended(run.status) : false
  useEffect(() => {
    if (id && goesOn) follow(id)
  }, [id, goesOn])

  // Nothing of it waits to be looked at any more, also if this page did not see that happen.
  const over = run ? ended(run.status) : false
  useEffect(() => {
    if (over) useReviews.getState().forget(id)
  }, [id, over])

  if (!run) {
    if (!fault) return <Skeleton />
    return (
      <div className={parts.empty} role="alert">
        <h2>This run can’t be shown</h2>
        <p>{fault}</p>
      </div>
    )
  }
  return (
    <div className={css.page} data-testid="run" data-status={run.status}>
      <Head run={run} view={view} setView={setView} />
      <div className={css.scroll} tabIndex={0} role="region" aria-label={`The run: ${oneLine(run.prompt || run.objective || run.run)}`}>
        {fault && !whole && <p role="alert">Not all of this run is shown: {fault}</p>}
        {view === 'run' && proposals.length > 0 && (
          <p className={proposalsCss.waiting} role="status">
            <GitPullRequestArrow size={17} aria-hidden />
            <span>{proposals.length === 1 ? 'A change to this document waits for you.' : `${proposals.length} changes to this document wait for you.`}</span>
            <button type="button" className={parts.button} onClick={() => setView('document')}>
              Look
            </button>
          </p>
        )}
        {view === 'document' && <Proposals list={proposals} run={run.run} />}
        {view === 'run' ? <Body run={run} /> : <LivingDocument id={run.document} />}
      </div>
      <Foot run={run} />
    </div>
  )
}

function Head({ run, view, setView }: { run: RunView; view: 'run' | 'document'; setView: (v: 'run' | 'document') => void }) {
  const [undoing, setUndoing] = useState(false)
  const readOnly = useConnection((s) => s.readOnly)
  const worked = changed(run)
  const command = (c: 'pause' | 'resume' | 'cancel') => void act('run.commanded', { command: c }, { run: run.run }).catch(() => {}) // a refusal is told by the link
  const over = ended(run.status)
  const { kind, text } = standing(run)
  return (
    <>
      <div className={css.head}>
        <span data-testid="run-status" role="status">
          <Pill kind={kind} text={text} />
        </span>
        <span className={css.when}>{run.started && clock(run.started)}</span>
        <span className={css.gap} />
        {run.document && (
          <button type="button" className={parts.ghost} onClick={() => setView(view === 'run' ? 'document' : 'run')}>
            {view === 'run' ? <FileText size={14} aria-hidden /> : <ListChecks size={14} aria-hidden />}
            <span className={css.label}>{view === 'run' ? 'Document' : 'Run'}</span>
          </button>
        )}
        <button type="button" className={parts.ghost} data-testid="run-trace" onClick={() => openThing('trace', run.run, `Trace: ${run.objective || run.prompt}`)}>
          <ChartGantt size={14} aria-hidden /> <span className={css.label}>Trace</span>
        </button>
        {!over && !readOnly && (
          <>
            <button type="button" className={parts.ghost} onClick={() => command(run.paused ? 'resume' : 'pause')}>
              {run.paused ? <Play size={13} aria-hidden /> : <Pause size={13} aria-hidden />} <span className={css.label}>{run.paused ? 'Resume' : 'Pause'}</span>
            </button>
            <button type="button" className={parts.button} onClick={() => command('cancel')}>
              <Square size={11} aria-hidden /> Cancel
            </button>
          </>
        )}
        {over && !readOnly && run.prompt && run.status !== 'done' && (
          <button type="button" className={parts.ghost} onClick={() => void submitPrompt(run.prompt).catch(tell)}>
            <RotateCcw size={13} aria-hidden /> Retry
          </button>
        )}
        {over && !readOnly && worked && (
          <button type="button" className={parts.button} aria-expanded={undoing} onClick={() => setUndoing(!undoing)}>
            <Undo2 size={13} aria-hidden /> Undo
          </button>
        )}
      </div>
      {undoing && <Restore target={{ run: run.run }} close={() => setUndoing(false)} />}
    </>
  )
}

function Body({ run }: { run: RunView }) {
  const open = run.questions.filter((q) => q.answer === undefined)
  const effects = useMemo(() => run.outside.reduce(effectsAfter, []), [run.outside])
  const unknown = effects.some((e) => e.outcome === 'unknown')
  const asks = run.approvals.filter((a) => !a.answer)
  const now = nowWords(run)
  const denied = run.approvals.filter((a) => a.answer === 'deny' && !run.tasks.some((t) => t.task === a.task))
  const outside = effects.length > 0 && <Outside effects={effects} over={ended(run.status)} />
  return (
    <>
      <Asked text={run.prompt || run.objective || 'A run'} />
      {run.prompt && run.objective && !sameWords(run.prompt, run.objective) && <p className={css.prompt} data-testid="run-objective">Aim: {oneLine(run.objective, 400)}</p>}
      {run.provider === 'rehearsal' && <Rehearsal />}
      {run.continues && <Before run={run.continues} />}
      {now && <p className={css.now} data-testid="run-now">{now}</p>}
      {run.direct && <p className={css.prompt} data-testid="run-direct">It went to one Associate at once: {run.direct}.</p>}
      {run.stoodWords && <p className={css.prompt} data-testid="run-stood">{run.stoodWords}</p>}

      {!ended(run.status) && run.waits.length > 0 && <ModelWaits run={run} />}
      {run.fallback && (
        <p className={css.prompt} data-testid="run-fallback">
          {run.fallback} answers in the place of {run.provider}/{run.model}, which can’t be had now.
        </p>
      )}

      {!ended(run.status) && run.looks.map((l) => <Review key={`${l.task}-${l.review}`} run={run.run} look={l} />)}

      {!ended(run.status) && asks.length > 0 && <AsksConsole asks={asks} />}

      {!ended(run.status) && open.map((q) => <QuestionCard key={q.id} run={run.run} question={q} />)}

      {unknown && outside}

      {ended(run.status) && <Answer run={run} />}

      {run.plan.length > 0 && (
        <section role="group" aria-label="Plan">
          <h2>Plan</h2>
          <ol className={css.plan}>
            {run.plan.map((item, i) => (
              <li key={i} data-status={item.status}>
                <Mark kind={planStands(run, item)} />
                <span>{item.text}</span>
              </li>
            ))}
          </ol>
        </section>
      )}
      {run.stream && (
        <p className={css.stream} aria-label="The model, as it writes">
          {run.stream.slice(-600)}
        </p>
      )}

      {run.tasks.length + denied.length > 0 && (
        <section role="group" aria-label="Evidence">
          <h2>Evidence</h2>
          {denied.length > 0 && <div className={css.denied}>{denied.map((a) => <Denied key={a.approval} approval={a} />)}</div>}
          {run.tasks.map((t, i) => (
            <Evidence key={t.task} run={run} task={t} at={i} />
          ))}
        </section>
      )}

      {!unknown && outside}

      <Said said={run.said} />
    </>
  )
}

function Answer({ run }: { run: RunView }) {
  const none = discarded(run)
  const summary = withoutNotice(run, run.summary ?? '')
  const error = withoutNotice(run, run.error)
  return (
    <section role="group" aria-label="Answer" className={css.answer} data-outcome={none ? 'none' : outcome(run)} data-testid="answer">
      <h2>{none ? 'Discarded by you' : run.status === 'done' ? 'Answer' : run.status === 'failed' ? 'What went wrong' : 'Cancelled'}</h2>
      {none && (
        <p>
          Nothing of it is live.{run.tasks.at(-1)?.result?.kept && ' What it wrote is kept: say below what comes next, and a new run goes on from there.'}
        </p>
      )}
      <Markdown text={summary} />
      {error && !saysAlready(summary, error) && <pre tabIndex={0}>{error}</pre>}
    </section>
  )
}

/** That no model took part, once for the whole window, and the way to where one is connected. */
function Rehearsal() {
  return (
    <p className={css.rehearsal} data-testid="run-rehearsal">
      Rehearsal: no model, a written plan is played.{' '}
      <button type="button" onClick={() => openApp('welcome')}>
        Connect one
      </button>
    </p>
  )
}

/** What a run goes on from, and the way to it. */
function Before({ run }: { run: string }) {
  const prompt = useRuns((s) => s.runs[run]?.prompt)
  return (
    <p className={css.before} data-testid="run-continues">
      It continues{' '}
      <button type="button" onClick={() => openThing('run', run, prompt || 'Run')}>
        {prompt ? oneLine(prompt, 80) : 'an earlier run'}
      </button>
    </p>
  )
}

function LivingDocument({ id }: { id: string | undefined }) {
  const doc = useDocuments((s) => (id ? s.documents[id] : undefined))
  const [fault, setFault] = useState('')
  const online = useConnection((s) => s.state === 'online')
  const missing = id !== undefined && (doc === undefined || doc.body === null)
  const revision = doc?.revision // a later one makes the answer for an earlier one useless
  useEffect(() => {
    if (!missing || !online) return
    let stop = false
    ask('document.get', { document: id }).then(
      (d) => {
        if (stop) return
        useDocuments.getState().put(d)
        setFault('')
      },
      (e: unknown) => !stop && setFault(e instanceof Error ? e.message : String(e)),
    )
    return () => {
      stop = true
    }
  }, [id, missing, revision, online])
  if (fault) return <p role="alert">{fault}</p>
  if (!doc || doc.body === null) return <Skeleton />
  return (
    <>
      <Markdown text={doc.body} />
      <p className={css.provenance}>
        {doc.path}, revision {doc.revision}
        {doc.author && ` by ${doc.author}`}
      </p>
    </>
  )
}

function Foot({ run }: { run: RunView }) {
  const [text, setText] = useState('')
  const [now, setNow] = useState(() => Date.now())
  const readOnly = useConnection((s) => s.readOnly)
  const over = ended(run.status)
  useEffect(() => {
    if (over) return
    const timer = setInterval(() => setNow(Date.now()), 1000)
    return () => clearInterval(timer)
  }, [over])
  // Who continued a run goes on typing in the window of the new one.
  const field = useRef<HTMLInputElement>(null)
  const wanted = useHere((s) => s.run === run.run)
  useEffect(() => {
    if (!wanted) return
    field.current?.focus()
    useHere.setState({ run: '' })
  }, [wanted])
  const u = run.usage
  // Its models' and tools' time is less than that, or more where several work at once.
  const ms = (run.ended ? Date.parse(run.ended) : now) - Date.parse(run.started)
  const calls = over ? (u?.tool_calls ?? 0) : Math.max(u?.tool_calls ?? 0, run.called)
  const facts = [
    duration(Number.isFinite(ms) ? ms : 0),
    calls > 0 ? count(calls, 'tool call') : '',
    u && u.tokens_in + u.tokens_out > 0 ? count(u.tokens_in + u.tokens_out, 'token') : '',
    money(u?.cost_usd ?? 0),
    run.provider === 'rehearsal' ? '' : run.model,
  ].filter(Boolean)
  return (
    <footer className={css.foot}>
      {!readOnly && (
        <form
          className={css.steer}
          onSubmit={(e) => {
            e.preventDefault()
            if (!text.trim()) return
            const said = text.trim()
            setText('')
            const back = () => setText(said)
            if (over) submitPrompt(said, { continues: run.run }).then(() => useHere.setState({ run: front(useWindows.getState().windows)?.props?.run ?? '' })).catch((e: unknown) => (back(), tell(e)))
            else act('run.steered', { text: said }, { run: run.run }).catch(back) // the link told why
          }}
        >
          <input
            ref={field}
            data-framed
            data-things="window"
            value={text}
            onChange={(e) => setText(e.target.value)}
            placeholder={over ? 'Go on from here: say what comes next' : 'Steer it: say what should be different'}
            aria-label={over ? 'Go on from this run' : 'Steer this run'}
          />
          <button type="submit" className={parts.ghost} disabled={!text.trim()}>
            {over ? 'Continue' : 'Steer'}
          </button>
        </form>
      )}
      <p className={css.facts} data-testid="run-cost">
        {facts.map((f) => (
          <span key={f}>{f}</span>
        ))}
      </p>
    </footer>
  )
}
