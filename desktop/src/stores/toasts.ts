import type { Event } from '../contract/types'
import { dataOf } from '../contract/types'
import { describe, type Tone } from '../text/describe'
import { keptStore } from './kept'
import { discarded, useRuns } from './runs'
import { front, useWindows } from './windows'

export interface Toast {
  id: number
  tone: Tone
  title: string
  detail: string
  run?: string
  at: number
}

interface ToastsState {
  /** The last eight, oldest first. */
  toasts: Toast[]
  next: number
  take(e: Event): void
  /** Shows a message of the page's own, such as a refusal. */
  say(tone: Tone, title: string, detail?: string): void
}

const most = 8

/** What a run's window shows by itself, be it good or bad. */
const inWindow = new Set(['run.reported', 'run.stood', 'question.asked', 'review.requested', 'model.waiting', 'model.resumed', 'document.proposed', 'effect.ended', 'checkpoint.created'])

/** The run that the toast leads to: for a proposal the one whose document it would change, not the one that made it. */
function subjectRun(e: Event): string | undefined {
  if (e.type !== 'document.proposed') return e.run
  const document = dataOf(e, e.type)?.document ?? e.subject?.replace(/^proposals\//, '')
  return Object.values(useRuns.getState().runs).find((r) => r.document === document)?.run ?? e.run
}

/** Whether a run's window is in front. */
function looksAt(run: string): boolean {
  const w = front(useWindows.getState().windows)
  return w?.app === 'run' && w.props?.run === run
}

export const useToasts = keptStore<ToastsState>('toasts', (set) => {
  const push = (t: Omit<Toast, 'id' | 'at'>) =>
    set((s) => {
      const others = s.toasts.filter((o) => o.title !== t.title || o.detail !== t.detail || o.run !== t.run) // a repeated message replaces the earlier one
      return { next: s.next + 1, toasts: [...others, { ...t, id: s.next, at: Date.now() }].slice(-most) }
    })
  return {
    toasts: [],
    next: 1,
    take(e) {
      const said = describe(e)
      if (said?.quiet !== false) return
      const run = subjectRun(e)
      if (run && looksAt(run) && (said.tone === 'ok' || inWindow.has(e.type))) return // the run's window says so already, and the toast would cover it
      const view = run ? useRuns.getState().runs[run] : undefined
      if (e.type === 'run.reported' && view && discarded(view)) return // it is what somebody has just chosen
      push({ tone: said.tone, title: said.title, detail: said.detail, ...(run ? { run } : {}) })
    },
    say: (tone, title, detail = '') => push({ tone, title, detail }),
  }
})
