import { useEffect, type RefObject } from 'react'

/** Closes an open popover when the pointer goes down outside it, or on Escape. */
export function useAway(open: boolean, box: RefObject<HTMLElement | null>, close: () => void): void {
  useEffect(() => {
    if (!open) return
    const away = (e: Event) => {
      if (e instanceof KeyboardEvent ? e.key === 'Escape' : !box.current?.contains(e.target as Node)) close()
    }
    window.addEventListener('pointerdown', away)
    window.addEventListener('keydown', away)
    return () => {
      window.removeEventListener('pointerdown', away)
      window.removeEventListener('keydown', away)
    }
  }, [open, box, close])
}
