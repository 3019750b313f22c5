import { useEffect } from 'react'
import { front, stacked, useWindows } from '../stores/windows'
import { zoneFrame, zoneStep } from './geometry'
import { useOverlay } from './overlayStore'
import { usePromptBar } from './promptStore'
import { useScreen } from './screen'

/** Every keyboard shortcut of the shell, as the help shows it. */
export const keys: { keys: string[]; what: string }[] = [
  { keys: ['Ctrl', 'K'], what: 'Prompt bar, from anywhere (also ? outside text)' },
  { keys: ['Enter'], what: 'Send; Shift+Enter starts a new line' },
  { keys: ['↑'], what: 'What you sent before' },
  { keys: ['Ctrl', 'V'], what: 'Bring in files and pictures, as a drop does' },
  { keys: ['F9'], what: 'All windows: arrow keys, Enter raises, Delete closes, letters find, Esc leaves' },
  { keys: ['Ctrl', 'Alt', '← → ↑ ↓'], what: 'Snap the window to halves, quarters, full' },
  { keys: ['Ctrl', 'Alt', 'N'], what: 'Next window' },
  { keys: ['Ctrl', 'Alt', 'M'], what: 'Minimise the window' },
  { keys: ['Ctrl', 'Alt', 'W'], what: 'Close the window' },
  { keys: ['← → ↑ ↓'], what: 'On a title bar: move; with Shift resize' },
]

/** Handles the shell's keyboard shortcuts; arrow keys belong to a text field while it has the focus. */
export function useKeys(): void {
  useEffect(() => {
    const press = (e: KeyboardEvent) => {
      const typing = isText(e.target)
      if ((e.key.toLowerCase() === 'k' && (e.ctrlKey || e.metaKey) && !e.altKey && !e.shiftKey) || (e.key === '?' && !typing && !e.ctrlKey && !e.metaKey && !e.altKey)) {
        e.preventDefault()
        usePromptBar.getState().ask()
        return
      }
      // No text field and no keyboard layout types anything by it.
      if (e.key === 'F9' && !e.ctrlKey && !e.altKey && !e.metaKey && !e.shiftKey) {
        e.preventDefault()
        useOverlay.getState().toggle('windows')
        return
      }
      if (e.key === 'Escape') return useOverlay.getState().hide()
      if (!e.ctrlKey || !e.altKey || e.metaKey) return
      const { windows, place, raise, close } = useWindows.getState()
      const w = front(windows)
      const { area, phone } = useScreen.getState()
      // Compared by key code: with Alt held a keyboard layout may give another character.
      if (e.code === 'KeyN') {
        const first = stacked(windows).find((x) => x.state !== 'minimised')
        if (first) raise(first.window)
      } else if (e.code === 'KeyM' && w) place(w.window, w.frame, 'minimised')
      else if (e.code === 'KeyW' && w) close(w.window)
      else if (e.key.startsWith('Arrow') && w && !phone) {
        const zone = zoneStep(w.state === 'maximised' ? zoneFrame('full', area) : w.frame, e.key, area)
        if (zone === 'full') place(w.window, w.frame, 'maximised')
        else if (zone) place(w.window, zoneFrame(zone, area), 'normal')
      } else return
      e.preventDefault()
    }
    window.addEventListener('keydown', press)
    return () => window.removeEventListener('keydown', press)
  }, [])
}

export function isText(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName))
}
