import { useEffect, useRef, type RefObject } from 'react'
import { X } from 'lucide-react'
import parts from '../parts/parts.module.css'
import css from './AppSheet.module.css'
import { useCovering } from './covering'
import { Icons } from './Icons'
import { useOverlay } from './overlayStore'

/** The apps, over whatever window covers the desktop. */
export function AppSheet({ behind }: { behind: RefObject<HTMLElement | null> }) {
  const { hide, leaveTo } = useOverlay.getState()
  const sheet = useRef<HTMLElement>(null)
  useCovering(sheet, behind, false)
  useEffect(() => sheet.current?.querySelector<HTMLElement>('li button')?.focus(), [])
  return (
    <div className={css.shade}>
      <section ref={sheet} className={css.sheet} aria-labelledby="apps-title" data-testid="apps">
        <header>
          <h2 id="apps-title">Apps</h2>
          <button type="button" className={parts.icon} aria-label="Close Apps" onClick={hide}>
            <X size={17} aria-hidden />
          </button>
        </header>
        <Icons className={css.icons} opened={leaveTo} />
      </section>
    </div>
  )
}
