import { keepThere, onConsole } from '../link/console'
import { keptStore, keptThing } from '../stores/kept'

interface PromptBarState {
  line: string
  /** Where the cursor is put at the next request to focus the bar; null means at the end. */
  caret: [number, number] | null
  /** Counts the requests to focus the bar. */
  focus: number
  /** The checkpoint that a slash command pointed at, for Time Travel to select. */
  pointed: { commit: string } | null
  set(line: string): void
  /** Fills the bar and puts the cursor at its end. */
  fill(line: string): void
  ask(): void
  /** Remembers the cursor's position, for the page that replaces this one. */
  moved(caret: [number, number]): void
  point(commit: string): void
}

// What is being typed outlives the page, for the frame may replace it with a new one.
const draftKey = 'choir.draft'

function draft(): string {
  try {
    return sessionStorage.getItem(draftKey) ?? ''
  } catch {
    return '' // without storage the draft lasts as long as the page
  }
}

function keep(line: string): { line: string } {
  try {
    if (line) sessionStorage.setItem(draftKey, line)
    else sessionStorage.removeItem(draftKey)
  } catch {
    // Without storage the draft lasts as long as the page.
  }
  return { line }
}

function hand(line: string, caret: [number, number] | null): void {
  keepThere('bar', line ? JSON.stringify({ line, caret }) : null)
}

export const usePromptBar = keptStore<PromptBarState>('prompt', (set, get) => ({
  line: draft(),
  caret: null,
  focus: 0,
  pointed: null,
  set(line) {
    set(keep(line))
    hand(line, get().caret)
  },
  fill(line) {
    set((s) => ({ ...keep(line), caret: null, focus: s.focus + 1 }))
    hand(line, null)
  },
  ask: () => set((s) => ({ focus: s.focus + 1, caret: null })),
  moved(caret) {
    set({ caret })
    hand(get().line, caret)
  },
  point: (commit) => set({ pointed: { commit } }),
}))

// The console says when this page becomes the one that is shown, what was being typed into
// the page before it, and whether the cursor was in its prompt bar.
keptThing('prompt handed on', () =>
  onConsole((said) => {
    if (said.type === 'choir.prompt') usePromptBar.getState().ask()
    if (said.type !== 'choir.shown') return
    const { line, caret } = handed(said.bar)
    usePromptBar.setState((s) => ({ ...(line === null ? {} : keep(line)), caret, focus: said.focus ? s.focus + 1 : s.focus }))
  }),
)

function handed(bar: unknown): { line: string | null; caret: [number, number] | null } {
  try {
    const { line, caret } = JSON.parse(String(bar)) as { line?: unknown; caret?: unknown }
    const at = Array.isArray(caret) && caret.length === 2 && caret.every((n) => Number.isSafeInteger(n)) ? (caret as [number, number]) : null
    return { line: typeof line === 'string' ? line : null, caret: at }
  } catch {
    return { line: null, caret: null }
  }
}
