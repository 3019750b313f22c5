import { useEffect, type RefObject } from 'react'
import { useOverlay } from './overlayStore'

/** What an overlay does while it is there: nothing behind it can be reached, and it goes when something beside it is pressed or gets the focus. */
export function useCovering(box: RefObject<HTMLElement | null>, behind: RefObject<HTMLElement | null>): void {
  useEffect(() => {
    const main = behind.current
    const away = (e: Event) => {
      const at = e.target
      if (at instanceof Element && !box.current?.contains(at) && !at.closest('[data-overlay]')) useOverlay.getState().hide()
    }
    main?.setAttribute('inert', '')
    window.addEventListener('pointerdown', away)
    window.addEventListener('focusin', away)
    return () => {
      window.removeEventListener('pointerdown', away)
      window.removeEventListener('focusin', away)
      main?.removeAttribute('inert')
      const to = useOverlay.getState().back.element
      if (document.activeElement === document.body && to instanceof HTMLElement) to.focus()
    }
  }, [box, behind])
}
