import { useLayoutEffect, useRef, useState } from 'react'
import parts from '../../parts/parts.module.css'
import css from './Run.module.css'

/** From how many characters on the words are set as text, not as a title. */
const long = 120

/** What the user asked, in their own words: the first lines, and all of it where somebody wants that. */
export function Asked({ text }: { text: string }) {
  const heading = useRef<HTMLHeadingElement>(null)
  const [whole, setWhole] = useState(false)
  const [cut, setCut] = useState(false)
  useLayoutEffect(() => {
    const el = heading.current
    if (!el || whole) return
    const measure = () => setCut(el.scrollHeight > el.clientHeight + 1)
    measure()
    const observer = new ResizeObserver(measure)
    observer.observe(el)
    return () => observer.disconnect()
  }, [text, whole])
  return (
    <>
      <h1 ref={heading} className={css.asked} data-long={text.length > long} data-whole={whole} data-testid="asked">
        {text}
      </h1>
      {(cut || whole) && (
        <button type="button" className={`${parts.ghost} ${css.all}`} aria-expanded={whole} onClick={() => setWhole(!whole)}>
          {whole ? 'Show less' : 'Show all'}
        </button>
      )}
    </>
  )
}
