import { useEffect, type RefObject } from 'react'
import { titleOf, useOverlay } from './overlayStore'

/**
 * What an overlay does while it is there: nothing behind it can be reached, and it goes when something beside it is pressed or gets the focus.
 * What covers everything has the browser leave out what is behind it, which is quick however much that is; inert has the style of each element
 * there computed anew.
 */
export function useCovering(box: RefObject<HTMLElement | null>, behind: RefObject<HTMLElement | null>, whole: boolean): void {
  useEffect(() => {
    const main = behind.current
    const away = (e: Event) => {
      const at = e.target
      if (at instanceof Element && !box.current?.contains(at) && !at.closest('[data-overlay]')) useOverlay.getState().hide()
    }
    if (whole) main?.style.setProperty('content-visibility', 'hidden')
    else main?.setAttribute('inert', '')
    window.addEventListener('pointerdown', away)
    window.addEventListener('focusin', away)
    return () => {
      window.removeEventListener('pointerdown', away)
      window.removeEventListener('focusin', away)
      main?.style.removeProperty('content-visibility')
      main?.removeAttribute('inert')
      const { back } = useOverlay.getState()
      const to = 'window' in back ? titleOf(back.window) : back.element
      if (document.activeElement === document.body && to instanceof HTMLElement) to.focus()
    }
  }, [box, behind, whole])
}
