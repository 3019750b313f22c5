import { useEffect, type RefObject } from 'react'
import { AppSheet } from './AppSheet'
import { type Over, useOverlay } from './overlayStore'
import { Overview } from './Overview'
import { useScreen } from './screen'

/** What lies over the windows, until it is left: all of them as tiles, or the apps. */
export default function Overlay({ shown, behind }: { shown: Over; behind: RefObject<HTMLElement | null> }) {
  useBackButton()
  return shown === 'windows' ? <Overview behind={behind} /> : <AppSheet behind={behind} />
}

/** On a phone the Back button closes it, instead of leaving the page. */
function useBackButton(): void {
  useEffect(() => {
    if (!useScreen.getState().phone) return
    const { hide } = useOverlay.getState()
    history.pushState({ over: true }, '')
    window.addEventListener('popstate', hide)
    return () => {
      window.removeEventListener('popstate', hide)
      if ((history.state as { over?: boolean } | null)?.over) history.back()
    }
  }, [])
}
