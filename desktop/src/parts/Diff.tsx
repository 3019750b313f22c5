import { useMemo } from 'react'
import { count } from '../text/format'
import css from './Diff.module.css'
import { readDiff } from './unified'

/** A unified diff, file by file, with line numbers. Prose wraps; code does not. */
export function Diff({ text, prose = false }: { text: string; prose?: boolean }) {
  const files = useMemo(() => readDiff(text), [text])
  return (
    <div className={css.diff} data-testid="diff" data-prose={prose}>
      {files.map((f, i) => (
        <div className={css.file} key={`${f.path}-${i}`}>
          <h3>
            <span>
              <bdi>{f.path}</bdi>
            </span>
            <ins>+{f.added}</ins> <del>−{f.removed}</del>
          </h3>
          <div className={css.lines} tabIndex={0} role="group" aria-label={`Changes in ${f.path}`}>
            {f.lines.map((l, n) => (
              <div key={n} data-kind={l.kind}>
                <span>{l.old ?? ''}</span>
                <span>{l.new ?? ''}</span>
                <code>{l.text || ' '}</code>
              </div>
            ))}
          </div>
          {f.hidden > 0 && <p>{count(f.hidden, 'more line')} not shown.</p>}
        </div>
      ))}
    </div>
  )
}
