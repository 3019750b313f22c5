import { useCallback, useRef, useState } from 'react'
import { createPortal } from 'react-dom'
import { useWindows } from '../stores/windows'
import css from './AllWindows.module.css'
import { useAway } from './popover'

/** Every open window by name, for when the bar has no room for all of them. */
export function AllWindows({ labels, active, more }: { labels: Record<string, string>; active: string | undefined; more: number }) {
  const [open, setOpen] = useState(false)
  const list = useRef<HTMLElement>(null)
  const close = useCallback(() => setOpen(false), [])
  useAway(open, list, close)
  return (
    <>
      <button type="button" className={css.more} data-on-desktop aria-expanded={open} aria-label={`All windows, ${more} more`} data-testid="all-windows" onPointerDown={(e) => e.stopPropagation()} onClick={() => setOpen(!open)}>
        +{more}
      </button>
      {/* The bar clips what is in its row of windows. */}
      {open &&
        createPortal(
          <nav className={css.list} ref={list} aria-label="All windows">
           <ul>
            {Object.entries(labels)
              .sort(([a], [b]) => (a < b ? -1 : 1))
              .map(([id, label]) => (
                <li key={id}>
                  <button
                    type="button"
                    aria-current={id === active}
                    onClick={() => {
                      useWindows.getState().raise(id)
                      close()
                    }}
                  >
                    {label}
                  </button>
                </li>
              ))}
           </ul>
          </nav>,
          document.querySelector('[data-testid="desktop"]')!,
        )}
    </>
  )
}
