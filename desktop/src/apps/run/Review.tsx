import { useEffect, useState } from 'react'
import { Check, Eye, MessageSquarePlus, Trash2, Undo2, X } from 'lucide-react'
import type { ReviewComment } from '../../contract/contract'
import type { Hunk, Review as Shown, ReviewFile } from '../../link/protocol'
import parts from '../../parts/parts.module.css'
import { Skeleton } from '../../parts/Skeleton'
import { ask, tell } from '../../shell/intents'
import { useConnection } from '../../stores/connection'
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

function Card({ run, shown }: { run: string; shown: Shown }) {
  const files = shown.files ?? []
  const [picked, setPicked] = useState(() => new Set(files.flatMap(whole)))
  const [comments, setComments] = useState<ReviewComment[]>([])
  const [busy, setBusy] = useState(false)
  const blocked = useConnection((s) => s.readOnly || s.state !== 'online')
  const all = files.flatMap(whole)
  const everything = all.every((k) => picked.has(k))
  const pick = (keys: string[], on: boolean) =>
    setPicked((was) => {
      const now = new Set(was)
      for (const k of keys) if (on) now.add(k)
      else now.delete(k)
      return now
    })
  const decide = async (decision: 'publish' | 'revise' | 'discard') => {
    setBusy(true)
    const { attempt, review, work, task } = shown
    const only = decision === 'publish' && !everything ? { only: taken(files, picked) } : {}
    try {
      await ask('review.answer', { run, task, attempt, review, work, decision, ...only, ...(comments.length > 0 ? { comments } : {}) })
    } catch (e) {
      tell(e)
      setBusy(false)
    }
  }
  const off = busy || blocked
  return (
    <section className={css.card} aria-label="To be looked at" data-testid="review">
      <header>
        <Eye size={17} aria-hidden />
        <h2>{count(shown.paths, 'changed path')} wait until you have looked at them</h2>
      </header>
      <p>Nothing of it is live. {shown.verification?.status === 'pass' ? 'Its checks passed.' : shown.verification?.status === 'fail' ? 'What you chose of it failed its checks.' : 'It is not verified.'}</p>
      {shown.reason && <pre tabIndex={0}>{shown.reason}</pre>}
      {files.map((f) => (
        <File key={f.path} file={f} picked={picked} pick={pick} comments={comments.filter((c) => c.path === f.path)}
          say={(c) => setComments((was) => [...was, c])} take={(c) => setComments((was) => was.filter((k) => k !== c))} off={off} />
      ))}
      {(shown.more ?? 0) > 0 && <p>{count(shown.more ?? 0, 'more file')} not listed: publish all of it to take them.</p>}
      <General comments={comments.filter((c) => !c.path)} say={(c) => setComments((was) => [...was, c])} take={(c) => setComments((was) => was.filter((k) => k !== c))} off={off} />
      <footer>
        <button type="button" className={comments.length > 0 ? parts.button : parts.primary} disabled={off || picked.size === 0} onClick={() => void decide('publish')}>
          <Check size={14} aria-hidden /> {everything ? 'Publish' : 'Publish what is chosen'}
        </button>
        {shown.kind !== 'exec' && (
          <button type="button" className={comments.length > 0 ? parts.primary : parts.button} disabled={off || comments.length === 0}
            title={comments.length === 0 ? 'Comment on a line first' : undefined} onClick={() => void decide('revise')}>
            <Undo2 size={14} aria-hidden /> Send back{comments.length > 0 ? ` with ${count(comments.length, 'comment')}` : ''}
          </button>
        )}
        <span />
        <button type="button" className={parts.ghost} disabled={off} onClick={() => void decide('discard')}>
          <Trash2 size={14} aria-hidden /> Discard
        </button>
      </footer>
    </section>
  )
}

interface Talk {
  comments: ReviewComment[]
  say: (c: ReviewComment) => void
  take: (c: ReviewComment) => void
  off: boolean
}

const plainly: Record<string, string> = {
  binary: 'binary content', large: 'too large to be shown', link: 'a link', folder: 'a folder', repository: 'a repository’s own files', mode: 'only who may execute it', cut: 'not shown: there is too much',
}

function File({ file, picked, pick, comments, say, take, off }: Talk & { file: ReviewFile; picked: Set<string>; pick: (keys: string[], on: boolean) => void }) {
  const keys = whole(file)
  const on = keys.filter((k) => picked.has(k)).length
  return (
    <div className={css.file}>
      <h3>
        <label>
          <input type="checkbox" checked={on === keys.length} disabled={off} ref={(i) => void (i && (i.indeterminate = on > 0 && on < keys.length))} onChange={(e) => pick(keys, e.target.checked)} />
          <bdi>{file.path}</bdi>
        </label>
        <span>{file.op}</span>
      </h3>
      {file.plain && <p>{plainly[file.plain] ?? file.plain}</p>}
      {(file.hunks ?? []).map((h) => (
        <Lines key={h.id} file={file} hunk={h} alone={(file.hunks ?? []).length === 1} on={picked.has(`${file.path}\n${h.id}`)} pick={(is) => pick([`${file.path}\n${h.id}`], is)} comments={comments} say={say} take={take} off={off} />
      ))}
    </div>
  )
}

function Lines({ file, hunk, alone, on, pick, comments, say, take, off }: Talk & { file: ReviewFile; hunk: Hunk; alone: boolean; on: boolean; pick: (on: boolean) => void }) {
  const [at, setAt] = useState<number>()
  return (
    <div className={css.hunk} data-on={on}>
      {!alone && (
        <label>
          <input type="checkbox" checked={on} disabled={off} onChange={(e) => pick(e.target.checked)} /> line {hunk.new}
        </label>
      )}
      <div className={css.lines} tabIndex={0} role="group" aria-label={`Changes in ${file.path} at line ${hunk.new}`}>
        {hunkLines(hunk).map((l, i) => (
          <div key={i}>
            <div className={css.line} data-kind={l.kind}>
              {l.new === null ? <span /> : (
                <button type="button" disabled={off} aria-label={`Comment on line ${l.new}`} onClick={() => setAt(at === l.new ? undefined : l.new!)}>
                  <MessageSquarePlus size={13} aria-hidden />
                </button>
              )}
              <span>{l.new ?? ''}</span>
              <code>{l.text || ' '}</code>
            </div>
            {l.new !== null && comments.filter((c) => c.line === l.new).map((c, n) => <Said key={n} comment={c} take={take} off={off} />)}
            {l.new !== null && at === l.new && (
              <Write label={`Comment on line ${l.new}`} off={off} say={(text) => { say({ path: file.path, line: l.new!, quote: l.text.trim().slice(0, 500), text }); setAt(undefined) }} />
            )}
          </div>
        ))}
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

function Write({ label, say, off }: { label: string; say: (text: string) => void; off: boolean }) {
  const [text, setText] = useState('')
  return (
    <form
      className={css.write}
      onSubmit={(e) => {
        e.preventDefault()
        if (!text.trim()) return
        say(text.trim())
        setText('')
      }}
    >
      <input data-framed value={text} maxLength={8192} disabled={off} onChange={(e) => setText(e.target.value)} placeholder={label} aria-label={label} />
      <button type="submit" className={parts.button} disabled={off || !text.trim()}>
        Comment
      </button>
    </form>
  )
}

function General({ comments, say, take, off }: Talk) {
  return (
    <div className={css.general}>
      {comments.map((c, n) => <Said key={n} comment={c} take={take} off={off} />)}
      <Write label="Comment on all of it" off={off} say={(text) => say({ text })} />
    </div>
  )
}
