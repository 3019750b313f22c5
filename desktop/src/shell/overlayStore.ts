import { keptStore } from '../stores/kept'

export type Over = 'windows' | 'apps'

interface OverlayState {
  /** What lies over the windows. It is this page's alone, and no event. */
  shown: Over | null
  /** What gets the focus when nothing lies over them any more. */
  back: { element: Element | null }
  toggle(what: Over): void
  hide(): void
  /** Leaves for a window. */
  leaveTo(window: string): void
}

export const useOverlay = keptStore<OverlayState>('overlay', (set) => ({
  shown: null,
  back: { element: null },
  toggle: (what) =>
    set((s) => ({ shown: s.shown === what ? null : what, back: s.shown === null ? { element: document.activeElement } : s.back })),
  hide: () => set({ shown: null }),
  leaveTo: (window) => set({ shown: null, back: { element: document.querySelector(`[data-window="${CSS.escape(window)}"] button`) } }),
}))
