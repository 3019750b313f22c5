import { Fragment, useState, type ReactNode } from 'react'
import { ChevronDown, Eye, FileDiff, FlaskConical, Globe, Quote, ShieldX, TerminalSquare, Wrench } from 'lucide-react'
import type { AssociateResult, Command, Verification } from '../../contract/contract'
import { Diff } from '../../parts/Diff'
import { Mark, type MarkKind } from '../../parts/Mark'
import type { ApprovalView, RunView, TaskView } from '../../stores/runs'
import { commandLine, count, duration, gist, oneLine } from '../../text/format'
import { deniedWords, hostOf } from './asked'
import css from './Run.module.css'
import { callWords, changedWords, checkWords, citedWords, commandsWords, ranWords, saysAlready, withoutNotice, type Words } from './sentences'
import { callStands, taskStands } from './standing'

/** Up to so many commands of a task are listed one by one. */
const fewCommands = 4

/** What one task did and what proves it: tool calls while it works, then commands, changes, checks and sources. What it was told to do is folded. */
export function Evidence({ run, task, at }: { run: RunView; task: TaskView; at: number }) {
  const r = task.result
  const step = run.plan.find((s) => s.task === task.task)?.text
  const said = r && r.status !== 'ok' ? withoutNotice(run, r.summary) : ''
  return (
    <article className={css.task} data-testid="task">
      {(step !== undefined || run.tasks.length > 1 || task.attempt > 1) && (
        <header>
          <Mark kind={taskStands(run, task)} />
          <b>{step ?? ((r?.status === 'ok' && gist(r.summary)) || `Task ${at + 1}`)}</b>
          {task.attempt > 1 && <span>attempt {task.attempt}</span>}
        </header>
      )}
      {said && !saysAlready(withoutNotice(run, run.summary ?? ''), said) && <p className={css.summary}>{said}</p>}
      {!r && task.calls.slice(-6).map((c) => (
        <Card key={`${c.attempt} ${c.call}`} icon={Wrench} mark={callStands(run, task.task, c.ok)} words={callWords(c)} time={c.ms}>
          {c.output && <pre tabIndex={0}>{c.output.slice(0, 8000)}</pre>}
        </Card>
      ))}
      {r && <Done result={r} />}
      <Checked verification={task.verification} />
      {r?.citations?.map((c, i) => (
        <Card key={`cite-${i}`} icon={Quote} words={[citedWords(c)]} note={oneLine(c.excerpt, 100)}>
          <blockquote>{c.excerpt}</blockquote>
        </Card>
      ))}
      {run.approvals.filter((a) => a.task === task.task && a.answer === 'deny').map((a) => <Denied key={a.approval} approval={a} />)}
      {(r?.egress.denied?.length ?? 0) > 0 && <Card icon={Globe} mark="fail" words={['Was refused the network', r!.egress.denied!.join(', ')]} />}
      <Told task={task} />
    </article>
  )
}

/** What a task that has ended ran and changed. */
function Done({ result }: { result: AssociateResult }) {
  const { commands = [], changes = [], reviewed, overlaps = [] } = result
  const list = commands.map((c, i) => <CommandCard key={i} command={c} />)
  return (
    <>
      {list.length > fewCommands ? <Card icon={TerminalSquare} mark={commands.some((c) => c.exit_code !== 0) ? 'fail' : 'did'} words={[commandsWords(commands)]}>{list}</Card> : list}
      {changes.length > 0 && (
        <Card icon={FileDiff} words={[changedWords(changes)]} note={changes.slice(0, 3).map((c) => c.path).join(', ')} lines={sum(changes)}>
          {result.diff ? <Diff text={result.diff} /> : <ul className={css.paths}>{changes.slice(0, 200).map((c) => <li key={c.path}>{c.op} {c.path}</li>)}</ul>}
        </Card>
      )}
      {reviewed && (
        <Card icon={Eye} words={['Looked at before it was published']} note={reviewed.decision === 'discard' ? 'none of it was wanted' : reviewed.only?.length ? `${count(reviewed.only.length, 'path')} taken, whole or in part` : 'all of it was taken'}>
          {reviewed.comments?.length ? (
            <ul className={css.paths}>
              {reviewed.comments.map((c, i) => (
                <li key={i}>
                  {c.path}
                  {c.line ? `:${c.line}` : ''} {c.text}
                </li>
              ))}
            </ul>
          ) : undefined}
        </Card>
      )}
      {overlaps.map((o) => (
        <Card key={o.task} icon={FileDiff} mark="unknown" words={[`Another task changed ${count(o.paths.length + (o.more ?? 0), 'file')} of it, too`]} note={o.paths.slice(0, 3).join(', ')} />
      ))}
    </>
  )
}

/** What was found when a task's work was checked. */
function Checked({ verification }: { verification: Verification | undefined }) {
  if (!verification) return null
  const { checks = [], status, reason } = verification
  return (
    <>
      {checks.map((c, i) => (
        <Card key={i} icon={FlaskConical} mark={c.status} words={[checkWords(c)]} note={commandLine(c.command.argv ?? [])} time={c.command.duration_ms}>
          <Output command={c.command} />
        </Card>
      ))}
      {checks.length === 0 && reason && <Card icon={FlaskConical} mark={status} words={[status === 'pass' ? 'Verified' : status === 'fail' ? 'Verification failed' : 'Not verified']} note={reason} />}
    </>
  )
}

/** What the task was told by whoever planned the run: agents' words to each other, folded. */
function Told({ task }: { task: TaskView }) {
  const { goal, told } = task
  if (!goal) return null
  const rows = told
    ? [
        ['Done when', told.acceptance?.join('\n')],
        ['Tools', told.tools?.join(', ')],
        ['Checked by', [told.verify?.profile, ...(told.verify?.commands ?? []).map(commandLine)].filter(Boolean).join(', ')],
        ['Network', [told.egress?.profile, ...(told.egress?.allow ?? [])].filter(Boolean).join(', ')],
        ['Kind', [told.kind, told.program, told.document].filter(Boolean).join(', ')],
      ].filter(([, text]) => text)
    : []
  return (
    <details className={css.told} data-testid="told">
      <summary>What it was told to do</summary>
      <p>{goal.slice(0, mostTold)}</p>
      {rows.length > 0 && (
        <dl>
          {rows.map(([name, text]) => (
            <Fragment key={name}>
              <dt>{name}</dt>
              <dd>{text!.slice(0, mostTold)}</dd>
            </Fragment>
          ))}
        </dl>
      )}
    </details>
  )
}

const mostTold = 20_000

/** What the run asked for and was not allowed; silence is a no as well. */
export function Denied({ approval }: { approval: ApprovalView }) {
  const { act } = approval
  return (
    <Card icon={ShieldX} mark="fail" markLabel="denied" words={[`A ${act.kind === 'egress' ? 'connection' : 'request'} to ${hostOf(act)} was denied`]} note={deniedWords(approval)}>
      {act.url ? <pre tabIndex={0}>{act.method ? `${act.method} ` : ''}{act.url}</pre> : undefined}
    </Card>
  )
}

function CommandCard({ command }: { command: Command }) {
  const well = command.exit_code === 0
  return (
    <Card icon={TerminalSquare} mark={well ? 'did' : 'fail'} words={ranWords(command)} time={command.duration_ms}>
      <Output command={command} />
    </Card>
  )
}

function Output({ command }: { command: Command }) {
  const text = [command.stdout, command.stderr].filter(Boolean).join('\n')
  return <pre tabIndex={0}>{text ? text.slice(0, 20_000) : 'It wrote nothing.'}</pre>
}

interface CardProps {
  icon: typeof Wrench
  words: Words
  note?: string
  /** Stands in the place of the icon. */
  mark?: MarkKind
  markLabel?: string
  time?: number | undefined
  lines?: { added: number; removed: number }
  children?: ReactNode
}

/** One piece of evidence, a sentence; what it rests on opens below it. */
function Card({ icon: Icon, words: [text, code, then], note, mark, markLabel, time, lines, children }: CardProps) {
  const [open, setOpen] = useState(false)
  return (
    <div className={css.card} data-testid="evidence">
      <button type="button" className={css.cardHead} aria-expanded={children ? open : undefined} disabled={!children} onClick={() => setOpen(!open)}>
        {mark ? <Mark kind={mark} {...(markLabel ? { label: markLabel } : {})} /> : <Icon size={16} strokeWidth={1.8} aria-hidden />}
        <span className={css.words}>
          {text}
          {code && <> <code>{code}</code></>}
          {then && `: ${then}`}
          {note && <small>{note}</small>}
        </span>
        {lines && (
          <span className={css.lines}>
            <ins>+{lines.added}</ins> <del>−{lines.removed}</del>
          </span>
        )}
        {time !== undefined && <span className={css.time}>{duration(time)}</span>}
        {children && <ChevronDown size={14} aria-hidden data-open={open} />}
      </button>
      {open && <div className={css.cardBody}>{children}</div>}
    </div>
  )
}

function sum(changes: { added: number; removed: number }[]) {
  return changes.reduce((t, c) => ({ added: t.added + Math.max(0, c.added), removed: t.removed + Math.max(0, c.removed) }), { added: 0, removed: 0 })
}
