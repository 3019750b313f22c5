import type { MouseEvent } from 'react'
import ReactMarkdown from 'react-markdown'
import gfm from 'remark-gfm'
import { useToasts } from '../stores/toasts'
import css from './parts.module.css'

/** Markdown for reading: no HTML, no images, and a link copies its address when it is clicked. */
export function Markdown({ text }: { text: string }) {
  return (
    <div className={css.markdown}>
      <ReactMarkdown
        remarkPlugins={[gfm]}
        skipHtml
        components={{
          img: ({ alt }) => <em>{alt || 'image'}</em>,
          a: ({ href, children }) => (
            <a href={href} title={`Copy ${href}`} onClick={(e) => copy(e, href)}>
              {children}
            </a>
          ),
          input: (props) => <input type="checkbox" checked={props.checked === true} readOnly disabled aria-label={props.checked ? 'done' : 'open'} />,
          pre: ({ children }) => <pre tabIndex={0}>{children}</pre>,
        }}
      >
        {text}
      </ReactMarkdown>
    </div>
  )
}

/** The desktop's frame can't open other pages, so a link's address is copied for the user. */
function copy(e: MouseEvent, href: string | undefined): void {
  e.preventDefault()
  if (!href) return
  navigator.clipboard.writeText(href).then(
    () => useToasts.getState().say('plain', 'Link copied', href),
    () => useToasts.getState().say('plain', 'The link', href),
  )
}
