import { Bot, Brain, CircleDot, CircleHelp, CirclePause, Hourglass, ListTree, Play, ShieldCheck, Upload, Wrench } from 'lucide-react'
import { Mark, type MarkKind } from '../../parts/Mark'
import css from './Trace.module.css'
import type { Kind, Standing } from './tree'

const icons: Record<Kind, typeof Bot> = {
  run: Play, agent: Bot, task: ListTree, model: Brain, tool: Wrench, wait: Hourglass, check: ShieldCheck, publish: Upload, still: CirclePause, other: CircleDot,
}

/** A kind of span: a shape and a colour; its word stands beside it. */
export function KindIcon({ kind }: { kind: Kind }) {
  const Icon = icons[kind] ?? CircleHelp
  return (
    <span className={css.kindIcon} data-kind={kind} aria-hidden>
      <Icon size={14} strokeWidth={2} />
    </span>
  )
}

const marks: Record<Standing, { kind: MarkKind; text: string } | null> = {
  ok: null, failed: { kind: 'fail', text: 'failed' }, cancelled: { kind: 'dropped', text: 'cancelled' }, open: { kind: 'active', text: 'under way' },
  unfinished: { kind: 'open', text: 'never ended' }, unknown: { kind: 'unknown', text: 'not verified' },
}

export const standingWord = (s: Standing): string => marks[s]?.text ?? 'ended well'

/** A mark for what did not simply end well. */
export function StandingMark({ standing }: { standing: Standing }) {
  const m = marks[standing]
  return m && <Mark kind={m.kind} label={m.text} />
}
