import { keepThere, onConsole } from '../link/console'
import { keptStore, keptThing } from '../stores/kept'
import { readChosen, type Chosen } from './choices'

interface PromptBarState {
  line: string
  /** What was chosen for it. */
  chosen: Chosen
  /** Where the cursor is put at the next request to focus the bar; null means at the end. */
  caret: [number, number] | null
  /** Counts the requests to focus the bar. */
  focus: number
  /** The checkpoint that a slash command pointed at, for Time Travel to select. */
  pointed: { commit: string } | null
  set(line: string): void
  /** Fills the bar and puts the cursor at its end. */
  fill(line: string): void
  choose(chosen: Chosen): void
  ask(): void
  /** Remembers the cursor's position, for the page that replaces this one. */
  moved(caret: [number, number]): void
  point(commit: string): void
}

// What is being typed outlives the page, for the frame may replace it with a new one.
const draftKey = 'choir.draft'
const chosenKey = 'choir.chosen'

function stored(key: string): string {
  try {
    return sessionStorage.getItem(key) ?? ''
  } catch {
    return '' // without storage it lasts as long as the page
  }
}

function store(key: string, text: string): void {
  try {
    if (text) sessionStorage.setItem(key, text)
    else sessionStorage.removeItem(key)
  } catch {
    // Without storage it lasts as long as the page.
  }
}

function parsed(text: string): Record<string, unknown> {
  try {
    return Object(JSON.parse(text)) as Record<string, unknown>
  } catch {
    return {}
  }
}

function keep(line: string): { line: string } {
  store(draftKey, line)
  return { line }
}

function keepChosen(chosen: Chosen): { chosen: Chosen } {
  store(chosenKey, JSON.stringify(chosen))
  return { chosen }
}

function hand(line: string, caret: [number, number] | null, chosen: Chosen): void {
  keepThere('bar', line || Object.keys(chosen).length > 0 ? JSON.stringify({ line, caret, chosen }) : null)
}

export const usePromptBar = keptStore<PromptBarState>('prompt', (set, get) => ({
  line: stored(draftKey),
  chosen: parsed(stored(chosenKey)),
  caret: null,
  focus: 0,
  pointed: null,
  set(line) {
    set(keep(line))
    hand(line, get().caret, get().chosen)
  },
  fill(line) {
    set((s) => ({ ...keep(line), caret: null, focus: s.focus + 1 }))
    hand(line, null, get().chosen)
  },
  choose(chosen) {
    set(keepChosen(chosen))
    hand(get().line, get().caret, chosen)
  },
  ask: () => set((s) => ({ focus: s.focus + 1, caret: null })),
  moved(caret) {
    set({ caret })
    hand(get().line, caret, get().chosen)
  },
  point: (commit) => set({ pointed: { commit } }),
}))

// The console says when this page becomes the one that is shown, what was being typed into
// the page before it, and whether the cursor was in its prompt bar.
keptThing('prompt handed on', () =>
  onConsole((said) => {
    if (said.type === 'choir.prompt') usePromptBar.getState().ask()
    if (said.type !== 'choir.shown') return
    const { line, caret, chosen } = handed(said.bar)
    usePromptBar.setState((s) => ({ ...(line === null ? {} : { ...keep(line), ...keepChosen(chosen) }), caret, focus: said.focus ? s.focus + 1 : s.focus }))
  }),
)

function handed(bar: unknown): { line: string | null; caret: [number, number] | null; chosen: Chosen } {
  const { line, caret, chosen } = parsed(String(bar))
  const at = Array.isArray(caret) && caret.length === 2 && caret.every((n) => Number.isSafeInteger(n)) ? (caret as [number, number]) : null
  return { line: typeof line === 'string' ? line : null, caret: at, chosen: readChosen(chosen) }
}
