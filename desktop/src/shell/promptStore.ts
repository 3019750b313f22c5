import { keptStore } from '../stores/kept'

interface PromptBarState {
  line: string
  /** Counts requests to put the cursor into the bar. */
  focus: number
  /** The checkpoint that a command pointed at, for Time Travel to select. */
  pointed: { commit: string } | null
  set(line: string): void
  /** Fills the bar and puts the cursor at its end. */
  fill(line: string): void
  ask(): void
  point(commit: string): void
}

// What is being typed outlives the page: the frame may put a fresh one in its place.
const draftKey = 'choir.draft'

function draft(): string {
  try {
    return sessionStorage.getItem(draftKey) ?? ''
  } catch {
    return '' // then it lasts as long as the page
  }
}

function keep(line: string): { line: string } {
  try {
    if (line) sessionStorage.setItem(draftKey, line)
    else sessionStorage.removeItem(draftKey)
  } catch {
    // As above.
  }
  return { line }
}

export const usePromptBar = keptStore<PromptBarState>('prompt', (set) => ({
  line: draft(),
  focus: 0,
  pointed: null,
  set: (line) => set(keep(line)),
  fill: (line) => set((s) => ({ ...keep(line), focus: s.focus + 1 })),
  ask: () => set((s) => ({ focus: s.focus + 1 })),
  point: (commit) => set({ pointed: { commit } }),
}))
