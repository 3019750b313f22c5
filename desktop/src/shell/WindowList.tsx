import { useCallback, useRef, useState, type ReactNode } from 'react'
import { createPortal } from 'react-dom'
import type { WindowRecord } from '../link/protocol'
import { later } from './later'
import { useAway } from './popover'

const WindowRows = later(() => import('./WindowRows'))

interface Props {
  className: string | undefined
  /** What is in it, with how many. */
  name: string
  windows: WindowRecord[]
  labels: Record<string, string>
  active: string | undefined
  children: ReactNode
}

/** A button of the bar that opens a list of windows, to raise and to close them. */
export function WindowList({ className, name, windows, labels, active, children }: Props) {
  const [at, setAt] = useState<{ left: number; bottom: number } | null>(null)
  const button = useRef<HTMLButtonElement>(null)
  const list = useRef<HTMLElement>(null)
  const close = useCallback(() => setAt(null), [])
  useAway(at !== null, list, close)
  const desk = document.querySelector('[data-testid="desktop"]')
  const toggle = () => {
    const b = button.current?.getBoundingClientRect()
    setAt(at || !b || !desk ? null : { left: Math.max(14, Math.min(b.left, desk.clientWidth - 354)), bottom: desk.clientHeight - b.top + 8 })
  }
  const leave = () => {
    close()
    button.current?.focus()
  }
  return (
    <>
      <button ref={button} type="button" className={className} data-on-desktop data-testid="window-list" title={name} aria-expanded={at !== null} aria-current={windows.some((w) => w.window === active)} onPointerDown={(e) => e.stopPropagation()} onClick={toggle}>
        {children}
      </button>
      {/* The bar clips what is in its row of windows. */}
      {at && desk && createPortal(
        <nav ref={list} aria-label={name}>
          <WindowRows at={at} windows={windows} labels={labels} active={active} close={close} leave={leave} />
        </nav>,
        desk,
      )}
    </>
  )
}
