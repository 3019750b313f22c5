import { useState, type ReactNode } from 'react'
import { ChevronDown, Eye, FileDiff, FlaskConical, Globe, Quote, ShieldX, TerminalSquare, Wrench } from 'lucide-react'
import type { Command } from '../../contract/types'
import { Diff } from '../../parts/Diff'
import { Mark, type MarkKind } from '../../parts/Mark'
import type { ApprovalView, RunView, TaskView } from '../../stores/runs'
import { commandLine, count, duration, gist, oneLine } from '../../text/format'
import { deniedWords, hostOf } from './asked'
import css from './Run.module.css'
import { callStands, taskStands } from './standing'

/** What one task did and what proves it: tool calls while it works, then commands, diff, checks and sources. */
export function Evidence({ run, task }: { run: RunView; task: TaskView }) {
  const r = task.result
  const checks = task.verification?.checks ?? []
  return (
    <article className={css.task} data-testid="task">
      <header>
        <Mark kind={taskStands(run, task)} />
        <b title={task.goal}>{gist(task.goal, 400) || 'Task'}</b>
        <span>
          {task.kind}
          {task.attempt > 1 && `, attempt ${task.attempt}`}
        </span>
      </header>
      {r && r.status !== 'ok' && !saysAlready(run.summary, r.summary) && <p className={css.summary}>{r.summary}</p>}
      {!r && task.calls.slice(-6).map((c) => (
        <Card key={`${c.attempt} ${c.call}`} icon={Wrench} mark={callStands(run, task.task, c.ok)} title={c.name} note={oneLine(argsOf(c.args), 90)} time={c.ms}>
          {c.output && <pre tabIndex={0}>{c.output.slice(0, 8000)}</pre>}
        </Card>
      ))}
      {r?.commands?.map((c, i) => <CommandCard key={i} command={c} />)}
      {r && (r.changes?.length ?? 0) > 0 && (
        <Card icon={FileDiff} title={count(r.changes!.length, 'file')} note={r.changes!.slice(0, 3).map((c) => c.path).join(', ')} lines={sum(r.changes!)}>
          {r.diff ? <Diff text={r.diff} /> : <ul className={css.paths}>{r.changes!.slice(0, 200).map((c) => <li key={c.path}>{c.op} {c.path}</li>)}</ul>}
        </Card>
      )}
      {r?.reviewed && (
        <Card icon={Eye} title="Looked at before it was published" note={r.reviewed.decision === 'discard' ? 'none of it was wanted' : r.reviewed.only?.length ? `${count(r.reviewed.only.length, 'path')} taken, whole or in part` : 'all of it was taken'}>
          {r.reviewed.comments?.length ? (
            <ul className={css.paths}>
              {r.reviewed.comments.map((c, i) => (
                <li key={i}>
                  {c.path}
                  {c.line ? `:${c.line}` : ''} {c.text}
                </li>
              ))}
            </ul>
          ) : undefined}
        </Card>
      )}
      {r?.overlaps?.map((o) => (
        <Card key={`overlap-${o.task}`} icon={FileDiff} mark="unknown" title={`Overlaps in ${count(o.paths.length + (o.more ?? 0), 'file')}`} note={`another task of the same delegation changed ${o.paths.slice(0, 3).join(', ')}, too`} />
      ))}
      {checks.map((c, i) => (
        <Card key={`check-${i}`} icon={FlaskConical} mark={c.status} title={c.name} note={commandLine(c.command.argv ?? [])} time={c.command.duration_ms}>
          <Output command={c.command} />
        </Card>
      ))}
      {task.verification && checks.length === 0 && task.verification.reason && (
        <Card icon={FlaskConical} mark={task.verification.status} title="Verification" note={task.verification.reason} />
      )}
      {r?.citations?.map((c, i) => (
        <Card key={`cite-${i}`} icon={Quote} title={c.source} note={oneLine(c.excerpt, 100)}>
          <blockquote>{c.excerpt}</blockquote>
        </Card>
      ))}
      {run.approvals.filter((a) => a.task === task.task && a.answer === 'deny').map((a) => <Denied key={a.approval} approval={a} />)}
      {(r?.egress.denied?.length ?? 0) > 0 && <Card icon={Globe} mark="fail" title="Network refused" note={r!.egress.denied!.join(', ')} />}
    </article>
  )
}

/** What the run asked for and was not allowed; silence is a no as well. */
export function Denied({ approval }: { approval: ApprovalView }) {
  const { act } = approval
  return (
    <Card icon={ShieldX} mark="fail" markLabel="denied" title={`${act.kind === 'egress' ? 'Connection' : 'Request'} to ${hostOf(act)}: denied`} note={deniedWords(approval)}>
      {act.url ? <pre tabIndex={0}>{act.method ? `${act.method} ` : ''}{act.url}</pre> : undefined}
    </Card>
  )
}

/** Whether what a task said stands in the run's own words, so that it is not said twice. */
function saysAlready(summary: string | undefined, said: string): boolean {
  const plain = (text: string) => text.replace(/\s+/g, ' ').trim()
  return plain(summary ?? '').includes(plain(said))
}

function CommandCard({ command }: { command: Command }) {
  return (
    <Card icon={TerminalSquare} mark={command.exit_code === 0 ? 'pass' : 'fail'} markLabel={`exit ${command.exit_code}`} title={commandLine(command.argv ?? [])} mono note={`exit ${command.exit_code}`} time={command.duration_ms}>
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
  title: string
  note?: string
  mark?: MarkKind
  markLabel?: string
  mono?: boolean
  time?: number | undefined
  lines?: { added: number; removed: number }
  children?: ReactNode
}

function Card({ icon: Icon, title, note, mark, markLabel, mono, time, lines, children }: CardProps) {
  const [open, setOpen] = useState(false)
  return (
    <div className={css.card} data-testid="evidence">
      <button type="button" className={css.cardHead} aria-expanded={children ? open : undefined} disabled={!children} onClick={() => setOpen(!open)}>
        <Icon size={15} strokeWidth={1.8} aria-hidden />
        <span className={mono ? css.mono : css.cardTitle}>{title}</span>
        <span className={css.note}>{note}</span>
        {lines && (
          <span className={css.lines}>
            <ins>+{lines.added}</ins> <del>−{lines.removed}</del>
          </span>
        )}
        {time !== undefined && <span className={css.time}>{duration(time)}</span>}
        {mark && <Mark kind={mark} {...(markLabel ? { label: markLabel } : {})} />}
        {children && <ChevronDown size={14} aria-hidden data-open={open} />}
      </button>
      {open && <div className={css.cardBody}>{children}</div>}
    </div>
  )
}

function sum(changes: { added: number; removed: number }[]) {
  return changes.reduce((t, c) => ({ added: t.added + Math.max(0, c.added), removed: t.removed + Math.max(0, c.removed) }), { added: 0, removed: 0 })
}

function argsOf(args: unknown): string {
  if (typeof args !== 'object' || args === null) return JSON.stringify(args) ?? ''
  const a = args as Record<string, unknown>
  for (const key of ['command', 'path', 'pattern', 'argv']) {
    const v = a[key]
    if (typeof v === 'string') return v
    if (Array.isArray(v)) return v.join(' ')
  }
  return JSON.stringify(args)
}
