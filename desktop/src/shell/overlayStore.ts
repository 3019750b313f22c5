import { keptStore } from '../stores/kept'

export type Over = 'windows' | 'apps'

interface OverlayState {
  /** What lies over the windows. It is this page's alone, and no event. */
  shown: Over | null
  /** What gets the focus when nothing lies over them any more: where it was, or the window that was chosen. */
  back: { element: Element | null } | { window: string }
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
  leaveTo: (window) => set({ shown: null, back: { window } }),
}))

/** A window's title, which has the focus when the window was chosen by key. */
export function titleOf(window: string): HTMLElement | null {
  return document.querySelector<HTMLElement>(`[data-window="${CSS.escape(window)}"] button`)
}
