import { useEffect, useState } from 'react'
import { FileWarning } from 'lucide-react'
import { onHot } from './hot'
import css from './Desktop.module.css'

interface SourceFault {
  message: string
  where: string
}

/** Says that the desktop's source does not compile at the moment; the screen shows the last code that did. */
export function SourceError() {
  const [fault, setFault] = useState<SourceFault | null>(null)
  useEffect(() => {
    const failed = onHot('vite:error', ({ err }) => {
      const file = (err.loc?.file ?? err.id ?? '').replace(/^.*\/src\//, 'src/')
      // The page was built from older source, so its health says nothing about the new one.
      document.documentElement.dataset.choirStale = 'true'
      setFault({ message: err.message.split('\n')[0] ?? 'It does not compile.', where: err.loc ? `${file}:${err.loc.line}` : file })
    })
    const mended = onHot('vite:afterUpdate', () => {
      delete document.documentElement.dataset.choirStale
      setFault(null)
    })
    return () => {
      failed()
      mended()
    }
  }, [])
  if (!fault) return null
  return (
    <div className={css.band} data-tone="danger" role="alert" data-testid="source-error">
      <FileWarning size={15} aria-hidden />
      <span>The desktop’s new source has an error; the old one goes on.</span>
      <code>
        {fault.where} {fault.message}
      </code>
    </div>
  )
}
