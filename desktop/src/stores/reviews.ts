import type { ReviewComment } from '../contract/contract'
import type { Event } from '../contract/types'
import { keptStore } from './kept'

/** What a person has chosen and said of work that waits for them, and has not sent yet. */
export interface ReviewDraft {
  /** The keys of what they do not take. */
  left: string[]
  comments: ReviewComment[]
  /** By place: comments that are being written. */
  writing: Record<string, ReviewComment>
}

interface ReviewsState {
  drafts: Record<string, ReviewDraft>
  change(key: string, change: (d: ReviewDraft) => ReviewDraft): void
  /** Forgets what was chosen of a run, or of one of its tasks. */
  forget(run: string, task?: string): void
  take(e: Event): void
}

/** The name of a draft: what was chosen of one tree says nothing about the next. */
export const draftKey = (run: string, { task, attempt, review }: { task: string; attempt: number; review: number }): string => `${run}/${task}/${attempt}/${review}`

export const noDraft: ReviewDraft = { left: [], comments: [], writing: {} }

const prefix = 'choir.review.'
/** How many drafts are kept, and how large one may be: a browser stores about 5 MB of a page. */
const mostDrafts = 20
const mostKept = 150_000

// Each has a key of its own in the page's storage, so that neither a reload nor another tab loses it.
function stored(): Record<string, ReviewDraft> {
  const drafts: Record<string, ReviewDraft> = {}
  try {
    for (const key of Object.keys(localStorage)) {
      if (!key.startsWith(prefix)) continue
      const draft = readDraft(localStorage.getItem(key))
      if (draft) drafts[key.slice(prefix.length)] = draft
    }
  } catch {
    // Without storage it lasts as long as the page.
  }
  return drafts
}

function store(key: string, draft: ReviewDraft | null): void {
  try {
    const text = draft && JSON.stringify(draft)
    if (text && text.length <= mostKept) localStorage.setItem(prefix + key, text)
    else localStorage.removeItem(prefix + key)
  } catch {
    // Without storage it lasts as long as the page.
  }
}

/** Reads a stored draft; null if it is none. */
export function readDraft(text: string | null): ReviewDraft | null {
  try {
    const { left, comments, writing } = Object(JSON.parse(text ?? '')) as Partial<Record<keyof ReviewDraft, unknown>>
    if (!Array.isArray(left) || !Array.isArray(comments)) return null
    const said = Object.entries(Object(writing) as object).filter((e): e is [string, ReviewComment] => isComment(e[1]))
    return { left: left.filter((k) => typeof k === 'string'), comments: comments.filter(isComment), writing: Object.fromEntries(said) }
  } catch {
    return null
  }
}

function isComment(c: unknown): c is ReviewComment {
  const { path, line, quote, text } = Object(c) as Record<string, unknown>
  const word = (v: unknown) => v === undefined || typeof v === 'string'
  return typeof text === 'string' && word(path) && word(quote) && (line === undefined || Number.isSafeInteger(line))
}

export const useReviews = keptStore<ReviewsState>('reviews', (set, get) => ({
  drafts: stored(),
  change(key, change) {
    const { [key]: old, ...others } = get().drafts
    const draft = change(old ?? noDraft)
    // The one that was changed last is the newest. Run ids sort by time, so the rest need no other order.
    const names = Object.keys(others)
    for (const oldest of names.sort().slice(0, Math.max(0, names.length - mostDrafts + 1))) {
      delete others[oldest]
      store(oldest, null)
    }
    store(key, draft)
    set({ drafts: { ...others, [key]: draft } })
  },
  forget(run, task) {
    const gone = Object.keys(get().drafts).filter((k) => k.startsWith(task ? `${run}/${task}/` : `${run}/`))
    if (gone.length === 0) return
    for (const key of gone) store(key, null)
    set((s) => ({ drafts: Object.fromEntries(Object.entries(s.drafts).filter(([k]) => !gone.includes(k))) }))
  },
  take(e) {
    if (e.run && e.task && (e.type === 'review.answered' || e.type === 'task.finished')) get().forget(e.run, e.task)
    if (e.run && e.type === 'run.reported') get().forget(e.run)
  },
}))
