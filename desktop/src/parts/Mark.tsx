import { Check, CircleDashed, CircleHelp, Hourglass, Loader, Minus, Pause, X } from 'lucide-react'
import css from './parts.module.css'

export type MarkKind = 'pass' | 'fail' | 'unknown' | 'open' | 'active' | 'dropped' | 'did' | 'waiting' | 'paused'

const words: Record<MarkKind, string> = {
  pass: 'verified', fail: 'failed', unknown: 'not verified', open: 'open', active: 'under way', dropped: 'dropped', did: 'done', waiting: 'waiting', paused: 'paused',
}

/**
 * ✓ verified, ✕ failed, ? unknown: three shapes and three colours, so that none is mistaken
 * for another. A thin grey ✓ is done, which proves nothing. Only what is under way turns. The label is empty where text beside the mark says the same.
 */
export function Mark({ kind, label }: { kind: MarkKind; label?: string }) {
  const size = 12
  return (
    <span className={css.mark} data-mark={kind === 'dropped' ? 'open' : kind} {...(label === '' ? { 'aria-hidden': true } : { role: 'img', 'aria-label': label ?? words[kind] })}>
      {kind === 'pass' && <Check size={size} strokeWidth={3} aria-hidden />}
      {kind === 'fail' && <X size={size} strokeWidth={3} aria-hidden />}
      {kind === 'unknown' && <CircleHelp size={14} strokeWidth={2.4} aria-hidden />}
      {kind === 'open' && <CircleDashed size={15} strokeWidth={1.8} aria-hidden />}
      {kind === 'active' && <Loader size={15} strokeWidth={2.2} aria-hidden />}
      {kind === 'did' && <Check size={14} strokeWidth={2} aria-hidden />}
      {kind === 'waiting' && <Hourglass size={13} strokeWidth={2.2} aria-hidden />}
      {kind === 'paused' && <Pause size={13} strokeWidth={2.2} aria-hidden />}
      {kind === 'dropped' && <Minus size={14} aria-hidden />}
    </span>
  )
}

export function Pill({ kind, text }: { kind: MarkKind; text: string }) {
  return (
    <span className={css.pill} data-mark={kind}>
      <Mark kind={kind} label="" />
      {text}
    </span>
  )
}
