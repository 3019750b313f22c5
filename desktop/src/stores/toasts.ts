import type { Event } from '../contract/types'
import { dataOf } from '../contract/types'
import { inSight } from '../shell/screen'
import { describe, type Tone } from '../text/describe'
import { keptStore } from './kept'
import { discarded, useRuns } from './runs'

export interface Toast {
  id: number
  tone: Tone
  title: string
  detail: string
  run?: string
  /** The apps whose windows show the same. */
  shownBy: string[]
  at: number
}

interface ToastsState {
  /** Those that are not gone yet, at most eight, oldest first; a run has one at most, which keeps its place when it says something newer. */
  toasts: Toast[]
  next: number
  take(e: Event): void
  /** Shows a message of the page's own, such as a refusal. */
  say(tone: Tone, title: string, detail?: string): void
  dismiss(id: number): void
  /** Takes away what a window shows that somebody has brought up since. */
  settle(): void
}

const most = 8

/** What a run's window shows by itself, be it good or bad. */
const inRun = new Set(['run.reported', 'run.stood', 'question.asked', 'review.requested', 'model.waiting', 'model.resumed', 'document.proposed', 'effect.ended'])
const inTimeTravel = new Set(['checkpoint.created', 'checkpoint.restored'])

/** The run that the toast leads to: for a proposal the one whose document it would change, not the one that made it. */
function subjectRun(e: Event): string | undefined {
  if (e.type !== 'document.proposed') return e.run
  const document = dataOf(e, e.type)?.document ?? e.subject?.replace(/^proposals\//, '')
  return Object.values(useRuns.getState().runs).find((r) => r.document === document)?.run ?? e.run
}

/** The apps whose windows show what an event says. */
function appsWith(e: Event, tone: Tone, run: string | undefined): string[] {
  return [...(run && (tone === 'ok' || inRun.has(e.type)) ? ['run'] : []), ...(inTimeTravel.has(e.type) ? ['timetravel'] : [])]
}

/** Whether a window that somebody sees says the same as a toast. */
function seen({ run, shownBy }: Pick<Toast, 'run' | 'shownBy'>): boolean {
  return shownBy.length > 0 && inSight().some((w) => shownBy.includes(w.app) && (w.app !== 'run' || w.props?.run === run))
}

export const useToasts = keptStore<ToastsState>('toasts', (set) => {
  const push = (t: Omit<Toast, 'id' | 'at'>) =>
    set((s) => {
      const toast = { ...t, id: s.next, at: Date.now() }
      const next = s.next + 1
      if (t.run && s.toasts.some((o) => o.run === t.run)) return { next, toasts: s.toasts.map((o) => (o.run === t.run ? toast : o)) }
      const others = s.toasts.filter((o) => o.title !== t.title || o.detail !== t.detail || o.run !== t.run) // a repeated message replaces the earlier one
      return { next, toasts: [...others, toast].slice(-most) }
    })
  return {
    toasts: [],
    next: 1,
    take(e) {
      const said = describe(e)
      if (said?.quiet !== false) return
      const run = subjectRun(e)
      const toast = { tone: said.tone, title: said.title, detail: said.detail, shownBy: appsWith(e, said.tone, run), ...(run ? { run } : {}) }
      if (seen(toast)) return // a window says so already, and the toast might cover it
      const view = run ? useRuns.getState().runs[run] : undefined
      if (e.type === 'run.reported' && view && discarded(view)) return // it is what somebody has just chosen
      push(toast)
    },
    say: (tone, title, detail = '') => push({ tone, title, detail, shownBy: [] }),
    dismiss: (id) => set((s) => ({ toasts: s.toasts.filter((t) => t.id !== id) })),
    settle: () => set((s) => (s.toasts.some(seen) ? { toasts: s.toasts.filter((t) => !seen(t)) } : s)),
  }
})
