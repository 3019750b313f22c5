import { useMemo, type DragEvent } from 'react'
import { count } from '../text/format'
import css from './Diff.module.css'
import { readDiff } from './unified'

/** What can be done with one file of a diff: by a button, or by dragging its heading out of the window. */
export interface EachFile {
  /** The files with which it can be done. */
  of: string[]
  label: string
  name: (path: string) => string
  act: (path: string) => void
  dropped: (path: string, e: DragEvent) => void
}

/** A unified diff, file by file, with line numbers. Prose wraps; code does not. */
export function Diff({ text, prose = false, each }: { text: string; prose?: boolean; each?: EachFile }) {
  const files = useMemo(() => readDiff(text), [text])
  return (
    <div className={css.diff} data-testid="diff" data-prose={prose}>
      {files.map((f, i) => (
        <div className={css.file} key={`${f.path}-${i}`}>
          <h3 draggable={each?.of.includes(f.path) ?? false} onDragStart={(e) => e.dataTransfer.setData('application/x-choir-path', f.path)} onDragEnd={(e) => each?.dropped(f.path, e)}>
            <span>
              <bdi>{f.path}</bdi>
            </span>
            <ins>+{f.added}</ins> <del>−{f.removed}</del>
            {each?.of.includes(f.path) && (
              <button type="button" aria-label={each.name(f.path)} onClick={() => each.act(f.path)}>
                {each.label}
              </button>
            )}
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
