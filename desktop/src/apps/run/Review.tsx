import { useEffect, useMemo, useState } from 'react'
import { Check, ChevronDown, Eye, MessageSquarePlus, Trash2, Undo2, X } from 'lucide-react'
import type { ReviewComment } from '../../contract/contract'
import type { Hunk, Review as Shown, ReviewFile } from '../../link/protocol'
import parts from '../../parts/parts.module.css'
import { Skeleton } from '../../parts/Skeleton'
import { ask, tell } from '../../shell/intents'
import { useConnection } from '../../stores/connection'
import { draftKey, noDraft, useReviews, type ReviewDraft } from '../../stores/reviews'
import type { Look } from '../../stores/runs'
import { count } from '../../text/format'
import css from './Review.module.css'
import { hunkLines, taken, whole } from './choice'

/** What a task made that is not live before its user has looked at it: file by file, hunk by hunk, line by line. */
export function Review({ run, look }: { run: string; look: Look }) {
  const online = useConnection((s) => s.state === 'online')
  const [shown, setShown] = useState<Shown>()
  const [fault, setFault] = useState('')
  const { task, review } = look
  useEffect(() => {
    if (!online) return
    let stop = false
    ask('review.show', { run, task }).then(
      (r) => !stop && r.review === review && (setShown(r), setFault('')),
      (e: unknown) => !stop && setFault(e instanceof Error ? e.message : String(e)),
    )
    return () => {
      stop = true
    }
  }, [run, task, review, online])
  if (fault) return <p role="alert">What waits for you can’t be shown: {fault}</p>
  if (!shown) return <Skeleton />
  return <Card key={`${task}-${review}`} run={run} shown={shown} />
}

/** How many files are shown open at once; of more only the names are, until one is opened. */
const mostOpen = 5

const place = (c: Pick<ReviewComment, 'path' | 'line'>): string => (c.path ? `${c.path}\n${c.line ?? 0}` : '')

function Card({ run, shown }: { run: string; shown: Shown }) {
  const files = useMemo(() => shown.files ?? [], [shown.files])
  const key = draftKey(run, shown)
  const draft = useReviews((s) => s.drafts[key]) ?? noDraft
  const [busy, setBusy] = useState(false)
  const [discarding, setDiscarding] = useState(false)
  const blocked = useConnection((s) => s.readOnly || s.state !== 'online')
  const all = useMemo(() => files.flatMap(whole), [files])
  const picked = useMemo(() => {
    const left = new Set(draft.left)
    return new Set(all.filter((k) => !left.has(k)))
  }, [all, draft.left])
  const everything = picked.size === all.length
  const change = (to: (d: ReviewDraft) => ReviewDraft) => useReviews.getState().change(key, to)
  // What is typed and not added yet is sent as well: it was meant to be said.
  const comments = [...draft.comments, ...Object.values(draft.writing).flatMap((c) => (c.text.trim() ? [{ ...c, text: c.text.trim() }] : []))]
  const talk: Talk = {
    comments: draft.comments,
    writing: draft.writing,
    off: busy || blocked,
    write: (c) => change((d) => ({ ...d, writing: { ...d.writing, [place(c)]: c } })),
    stop: (c) => change((d) => ({ ...d, writing: without(d.writing, place(c)) })),
    say: (c) => change((d) => ({ ...d, comments: [...d.comments, c], writing: without(d.writing, place(c)) })),
    take: (c) => change((d) => ({ ...d, comments: d.comments.filter((k) => k !== c) })),
  }
  const pick = (keys: string[], on: boolean) =>
    change((d) => ({ ...d, left: on ? d.left.filter((k) => !keys.includes(k)) : [...new Set([...d.left, ...keys])] }))
  const decide = async (decision: 'publish' | 'revise' | 'discard') => {
    setBusy(true)
    const { attempt, review, work, task } = shown
    const only = decision === 'publish' && !everything ? { only: taken(files, picked) } : {}
    try {
      await ask('review.answer', { run, task, attempt, review, work, decision, ...only, ...(comments.length > 0 ? { comments } : {}) })
      useReviews.getState().forget(run, task)
    } catch (e) {
      tell(e)
      setBusy(false)
    }
  }
  const many = files.length > mostOpen
  const chosen = files.filter((f) => whole(f).some((k) => picked.has(k))).length
  return (
    <section role="group" className={css.card} aria-label="To be looked at" data-testid="review">
      <header>
        <Eye size={17} aria-hidden />
        <h2>{count(shown.paths, 'changed path')} wait until you have looked at them</h2>
      </header>
      <p>Nothing of it is live. {shown.verification?.status === 'pass' ? 'Its checks passed.' : shown.verification?.status === 'fail' ? 'What you chose of it failed its checks.' : 'It is not verified.'}</p>
      {shown.reason && <pre tabIndex={0}>{shown.reason}</pre>}
      {many && (
        <label className={css.all}>
          <input type="checkbox" checked={everything} disabled={talk.off} ref={(i) => void (i && (i.indeterminate = picked.size > 0 && !everything))} onChange={(e) => pick(all, e.target.checked)} />
          {chosen} of {count(files.length, 'file')} chosen
        </label>
      )}
      <div className={many ? css.list : css.files}>
        {files.map((f) => (
          <File key={f.path} file={f} folds={many} picked={picked} pick={pick} {...talk} comments={talk.comments.filter((c) => c.path === f.path)} />
        ))}
      </div>
      {(shown.more ?? 0) > 0 && <p>{count(shown.more ?? 0, 'more file')} not listed: publish all of it to take them.</p>}
      <General {...talk} comments={talk.comments.filter((c) => !c.path)} />
      <footer>
        {discarding ? (
          <>
            <p>None of it will be live. What it wrote is kept, and a prompt can go on from it.</p>
            <button type="button" className={parts.button} data-danger disabled={talk.off} onClick={() => void decide('discard')}>
              <Trash2 size={14} aria-hidden /> Discard it
            </button>
            <button type="button" className={parts.ghost} autoFocus disabled={busy} onClick={() => setDiscarding(false)}>
              Cancel
            </button>
          </>
        ) : (
          <>
            <button type="button" className={comments.length > 0 ? parts.button : parts.primary} disabled={talk.off || picked.size === 0} onClick={() => void decide('publish')}>
              <Check size={14} aria-hidden /> {everything ? 'Publish' : 'Publish what is chosen'}
            </button>
            {shown.kind !== 'exec' && (
              <button type="button" className={comments.length > 0 ? parts.primary : parts.button} disabled={talk.off || comments.length === 0}
                title={comments.length === 0 ? 'Comment on a line first' : undefined} onClick={() => void decide('revise')}>
                <Undo2 size={14} aria-hidden /> Send back{comments.length > 0 ? ` with ${count(comments.length, 'comment')}` : ''}
              </button>
            )}
            <span />
            <button type="button" className={parts.ghost} disabled={talk.off} onClick={() => setDiscarding(true)}>
              <Trash2 size={14} aria-hidden /> Discard
            </button>
          </>
        )}
      </footer>
    </section>
  )
}

function without(writing: ReviewDraft['writing'], at: string): ReviewDraft['writing'] {
  return Object.fromEntries(Object.entries(writing).filter(([k]) => k !== at))
}

interface Talk {
  comments: ReviewComment[]
  writing: ReviewDraft['writing']
  write: (c: ReviewComment) => void
  stop: (at: Pick<ReviewComment, 'path' | 'line'>) => void
  say: (c: ReviewComment) => void
  take: (c: ReviewComment) => void
  off: boolean
}

const plainly: Record<string, string> = {
  binary: 'binary content', large: 'too large to be shown', link: 'a link', folder: 'a folder', repository: 'a repository’s own files', mode: 'only who may execute it', cut: 'not shown: there is too much',
}

function File({ file, folds, picked, pick, ...talk }: Talk & { file: ReviewFile; folds: boolean; picked: Set<string>; pick: (keys: string[], on: boolean) => void }) {
  const [open, setOpen] = useState(!folds)
  const keys = whole(file)
  const hunks = file.hunks ?? []
  const on = keys.filter((k) => picked.has(k)).length
  const all = hunks.flatMap(hunkLines)
  const said = talk.comments.length
  return (
    <div className={css.file}>
      <h3>
        <label>
          <input type="checkbox" checked={on === keys.length} disabled={talk.off} ref={(i) => void (i && (i.indeterminate = on > 0 && on < keys.length))} onChange={(e) => pick(keys, e.target.checked)} />
          <bdi>{file.path}</bdi>
        </label>
        {said > 0 && <span>{count(said, 'comment')}</span>}
        {hunks.length > 0 && (
          <span className={css.sums}>
            <ins>+{all.filter((l) => l.kind === 'add').length}</ins> <del>−{all.filter((l) => l.kind === 'del').length}</del>
          </span>
        )}
        <span>{file.op}</span>
        {folds && (
          <button type="button" className={parts.icon} aria-expanded={open} aria-label={`Changes in ${file.path}`} onClick={() => setOpen(!open)}>
            <ChevronDown size={14} aria-hidden data-open={open} />
          </button>
        )}
      </h3>
      {open && file.plain && <p>{plainly[file.plain] ?? file.plain}</p>}
      {open && hunks.map((h) => (
        <Lines key={h.id} file={file} hunk={h} alone={hunks.length === 1} on={picked.has(`${file.path}\n${h.id}`)} pick={(is) => pick([`${file.path}\n${h.id}`], is)} {...talk} />
      ))}
    </div>
  )
}

const signs = { add: '+', del: '−', same: '' }

function Lines({ file, hunk, alone, on, pick, ...talk }: Talk & { file: ReviewFile; hunk: Hunk; alone: boolean; on: boolean; pick: (on: boolean) => void }) {
  const { comments, writing, off } = talk
  return (
    <div className={css.hunk} data-on={on}>
      {!alone && (
        <label>
          <input type="checkbox" checked={on} disabled={off} onChange={(e) => pick(e.target.checked)} /> line {hunk.new}
        </label>
      )}
      <div className={css.lines} tabIndex={0} role="group" aria-label={`Changes in ${file.path} at line ${hunk.new}`}>
        {hunkLines(hunk).map((l, i) => {
          const here = { path: file.path, line: l.new ?? 0, quote: l.text.trim().slice(0, 500) }
          const draft = l.new === null ? undefined : writing[place(here)]
          return (
            <div key={i}>
              <div className={css.line} data-kind={l.kind}>
                {l.new === null ? <span /> : (
                  <button type="button" disabled={off} aria-label={`Comment on line ${l.new}`} onClick={() => (draft ? talk.stop(here) : talk.write({ ...here, text: '' }))}>
                    <MessageSquarePlus size={13} aria-hidden />
                  </button>
                )}
                <span>{l.new ?? ''}</span>
                <b>{signs[l.kind]}</b>
                <code>{l.text || ' '}</code>
              </div>
              {l.new !== null && comments.filter((c) => c.line === l.new).map((c, n) => <Said key={n} comment={c} take={talk.take} off={off} />)}
              {draft && <Write label={`Comment on line ${l.new}`} off={off} text={draft.text} write={(text) => talk.write({ ...here, text })} say={(text) => talk.say({ ...here, text })} />}
            </div>
          )
        })}
      </div>
    </div>
  )
}

function Said({ comment, take, off }: { comment: ReviewComment; take: (c: ReviewComment) => void; off: boolean }) {
  return (
    <p className={css.said}>
      <span>{comment.text}</span>
      <button type="button" className={parts.icon} disabled={off} aria-label="Take the comment back" onClick={() => take(comment)}>
        <X size={13} aria-hidden />
      </button>
    </p>
  )
}

function Write({ label, text, write, say, off }: { label: string; text: string; write: (text: string) => void; say: (text: string) => void; off: boolean }) {
  return (
    <form
      className={css.write}
      onSubmit={(e) => {
        e.preventDefault()
        if (text.trim()) say(text.trim())
      }}
    >
      <input data-framed data-things value={text} maxLength={8192} disabled={off} onChange={(e) => write(e.target.value)} placeholder={label} aria-label={label} />
      <button type="submit" className={parts.button} disabled={off || !text.trim()}>
        Comment
      </button>
    </form>
  )
}

function General({ comments, writing, write, say, take, off }: Talk) {
  return (
    <div className={css.general}>
      {comments.map((c, n) => <Said key={n} comment={c} take={take} off={off} />)}
      <Write label="Comment on all of it" off={off} text={writing['']?.text ?? ''} write={(text) => write({ text })} say={(text) => say({ text })} />
    </div>
  )
}
