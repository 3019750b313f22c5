import { useCallback, useEffect, useMemo, useState } from 'react'
import { ChevronRight, CornerLeftUp, File, Folder, Link2, Plug, ShieldOff } from 'lucide-react'
import type { FileEntry } from '../../link/protocol'
import parts from '../../parts/parts.module.css'
import { Skeleton } from '../../parts/Skeleton'
import { ask } from '../../shell/intents'
import { usePromptBar } from '../../shell/promptStore'
import { useConnection } from '../../stores/connection'
import { useEvents } from '../../stores/events'
import { useLabel } from '../../stores/windows'
import { clock, count, dayOf, size } from '../../text/format'
import css from './Files.module.css'
import { childrenOf, unkeptIn } from './listing'
import type { AppProps } from '../types'

const icons = { file: File, dir: Folder, symlink: Link2, other: Plug }

/** The workspace's files, and beside each path whether it is in no checkpoint. */
export default function Files({ window, props }: AppProps) {
  const label = useLabel(window)
  const [path, setPath] = useState(props.folder ?? '')
  const [only, setOnly] = useState(false)
  const { listing, fault, older } = useFolder(path)
  const crumbs = path === '' ? [] : path.split('/')
  const shown = useMemo(() => (listing && only ? listing.files.filter((f) => f.unkept || f.unkept_beneath) : listing?.files) ?? [], [listing, only])
  const unkept = listing ? unkeptIn(listing.files) : 0
  const go = (to: string) => {
    setPath(to)
    setOnly(false)
  }

  return (
    <div className={css.page} data-folder={path}>
      <header className={css.top}>
        <nav className={css.crumbs} aria-label={`Folder of ${label}`}>
          <button type="button" onClick={() => go('')} aria-current={path === '' ? 'page' : undefined}>
            Computer
          </button>
          {crumbs.map((name, i) => {
            const to = crumbs.slice(0, i + 1).join('/')
            return (
              <span key={to}>
                <ChevronRight size={13} aria-hidden />
                <button type="button" onClick={() => go(to)} aria-current={to === path ? 'page' : undefined}>
                  {name}
                </button>
              </span>
            )
          })}
        </nav>
        <button type="button" className={parts.icon} aria-label="The folder above" disabled={path === ''} onClick={() => go(crumbs.slice(0, -1).join('/'))}>
          <CornerLeftUp size={15} aria-hidden />
        </button>
      </header>
      {unkept > 0 && (
        <div className={css.unkept} role="status" data-testid="unkept">
          <ShieldOff size={15} aria-hidden />
          <span>
            <b>{unkept === 1 ? '1 path here is in no checkpoint' : `${count(unkept, 'path')} here are in no checkpoint`}</b>: what happens to {unkept === 1 ? 'it' : 'them'} can’t be undone.
          </span>
          <label>
            <input type="checkbox" checked={only} onChange={(e) => setOnly(e.target.checked)} /> Only those
          </label>
        </div>
      )}
      <div className={css.list} tabIndex={0} role="group" aria-label={path || 'Computer'}>
        {fault && <p role="alert">{fault}</p>}
        {!listing && !fault && <Skeleton />}
        {listing && shown.length === 0 && !fault && (
          <div className={parts.empty}>
            <h2>This folder is empty</h2>
            <p>Drop or paste files and folders here. What is dropped on the desktop goes to inbox, projects that you add to workspace.</p>
          </div>
        )}
        <ul>
          {shown.map((f) => (
            <Entry key={f.id} f={f} open={go} />
          ))}
        </ul>
        {listing?.more && (
          <button type="button" className={parts.ghost} onClick={older}>
            Show more
          </button>
        )}
      </div>
    </div>
  )
}

function Entry({ f, open }: { f: FileEntry; open: (path: string) => void }) {
  const Icon = icons[f.kind]
  const name = f.id.slice(f.id.lastIndexOf('/') + 1)
  const press = () => {
    if (f.kind === 'dir') return open(f.id)
    const { line, fill } = usePromptBar.getState()
    fill(`${line}${line === '' || line.endsWith(' ') ? '' : ' '}${f.id} `)
  }
  return (
    <li>
      <button type="button" className={css.row} data-testid="file" data-file={f.id} data-kind={f.kind} data-folder={f.kind === 'dir' ? f.id : undefined} data-unkept={f.unkept !== undefined} title={f.kind === 'dir' ? undefined : 'Put its path into the prompt bar'} onClick={press}>
        <Icon size={16} strokeWidth={1.7} aria-hidden />
        <span className={css.name}>
          {name}
          {f.target && <small> → {f.target}</small>}
        </span>
        {f.unkept ? (
          <span className={css.why}>Not kept: it {f.unkept}</span>
        ) : f.unkept_beneath ? (
          <span className={css.why}>{f.unkept_beneath.toLocaleString('en')} in it not kept</span>
        ) : null}
        <span className={css.size}>{f.kind === 'file' ? size(f.size) : ''}</span>
        <time>
          {dayOf(f.modified)}, {clock(f.modified)}
        </time>
      </button>
    </li>
  )
}

interface Listing {
  path: string
  files: FileEntry[]
  more: boolean
}

/** A folder's entries, requested again when something in the workspace has changed. */
function useFolder(path: string): { listing: Listing | null; fault: string; older: () => void } {
  const online = useConnection((s) => s.state === 'online')
  // The newest event that says that files in this folder changed; one request follows
  // however many files it is about.
  const changed = useEvents((s) => s.events.findLast((e) => childrenOf(e, path))?.sequence ?? 0)
  const [listing, setListing] = useState<Listing | null>(null)
  const [fault, setFault] = useState<{ path: string; words: string } | null>(null)
  useEffect(() => {
    if (!online) return
    let stop = false
    ask('files.list', { path }, 20_000).then(
      (got) => {
        if (stop) return
        setListing({ path, ...got })
        setFault(null)
      },
      (e: unknown) => !stop && setFault({ path, words: e instanceof Error ? e.message : String(e) }),
    )
    return () => {
      stop = true
    }
  }, [path, online, changed])
  const older = useCallback(() => {
    if (!listing) return
    ask('files.list', { path: listing.path, after: nameOf(listing.files.at(-1)) }, 20_000).then(
      (got) => setListing((l) => (l === listing ? { ...got, path: l.path, files: [...l.files, ...got.files] } : l)),
      (e: unknown) => setFault({ path: listing.path, words: e instanceof Error ? e.message : String(e) }),
    )
  }, [listing])
  return { listing: listing?.path === path ? listing : null, fault: fault?.path === path ? fault.words : '', older }
}

const nameOf = (f: FileEntry | undefined): string => f?.id.slice(f.id.lastIndexOf('/') + 1) ?? ''
