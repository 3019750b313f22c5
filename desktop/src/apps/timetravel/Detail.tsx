import { useEffect, useState, type DragEvent } from 'react'
import type { Checkpoint, Diff as DiffAnswer } from '../../link/protocol'
import { Diff, type EachFile } from '../../parts/Diff'
import parts from '../../parts/parts.module.css'
import { Skeleton } from '../../parts/Skeleton'
import { ask, openThing } from '../../shell/intents'
import { useCheckpoints } from '../../stores/checkpoints'
import { useConnection } from '../../stores/connection'
import { useRuns } from '../../stores/runs'
import { clock, count, dayOf } from '../../text/format'
import { compared, sayDay, type Group } from './groups'
import { NotInIt } from './NotInIt'
import css from './TimeTravel.module.css'
import { kindWords, madeBy } from './words'

/** What a checkpoint is compared with: the one before it, the live files, or another one. */
type Other = 'before' | 'now' | Checkpoint

interface Props {
  c: Checkpoint
  groups: Group[]
  title: string
  asking: boolean
  /** Asks to go back to it, or to bring one path of it back. */
  restore: (path?: string) => void
  back: () => void
  readOnly: boolean
}

/** One checkpoint: what it is, how it differs from another, and what can be brought back from it. */
export function Detail({ c, groups, title, asking, restore, back, readOnly }: Props) {
  const [other, setOther] = useState<Other>('before')
  const prompt = useRuns((s) => (c.run ? s.runs[c.run]?.prompt : undefined))
  // While a task works on the desktop, each of its edits gets a checkpoint; the task's own
  // checkpoint is compared with the one before all of them.
  const before = useCheckpoints((s) => (c.task && c.kind === 'task' ? (s.checkpoints.find((x) => x.sequence < c.sequence && x.task !== c.task)?.commit ?? c.parent) : c.parent) ?? '')
  const { from, to } = compared(c, other === 'before' ? before : other)
  const [{ diff, fault }, again] = useDiff(from, to)
  const each: EachFile | undefined =
    readOnly || asking || !diff ? undefined : { of: diff.changes.map((f) => f.path), label: 'Bring back…', name: (path) => `Bring back ${path} as it was then`, act: restore, dropped: (path, e) => outside(e) && restore(path) }
  return (
    <>
      <header className={css.head}>
        <button type="button" className={`${parts.ghost} ${css.back}`} onClick={back}>
          All checkpoints
        </button>
        <div>
          <h2>{title}</h2>
          <p title={c.commit}>
            {dayOf(c.time)}, {clock(c.time)}, {madeBy(c)}, {kindWords[c.kind]}
          </p>
        </div>
        {c.run && prompt !== undefined && (
          <button type="button" className={parts.ghost} onClick={() => openThing('run', c.run!, prompt)}>
            Show the run
          </button>
        )}
        {!asking && !readOnly && (
          <button type="button" className={parts.primary} data-testid="restore" onClick={() => restore()}>
            Restore…
          </button>
        )}
      </header>
      <Compare c={c} groups={groups} other={other} choose={setOther} />
      <div className={css.diff} tabIndex={0} role="region" aria-label="What changed">
        {fault && (
          <p role="alert" className={css.note}>
            {fault}{' '}
            <button type="button" className={parts.ghost} onClick={again}>
              Try again
            </button>
          </p>
        )}
        {!fault && !diff && <Skeleton />}
        {other === 'before' && <NotInIt key={c.commit} c={c} />}
        {diff && diff.changes.length === 0 && <p className={css.note}>{other === 'before' ? 'Nothing changed since the checkpoint before it.' : 'There is no difference.'}</p>}
        {diff && diff.changes.length > 0 && <Diff text={diff.diff} {...(each && { each })} />}
        {diff?.truncated && <p className={css.note}>The diff is longer than can be shown; {count(diff.changes.length, 'file')} changed.</p>}
      </div>
    </>
  )
}

/** Whether what was dragged was let go of outside the window that it is from, and not given up by Escape. */
function outside(e: DragEvent): boolean {
  const at = document.elementFromPoint(e.clientX, e.clientY)
  return e.dataTransfer.dropEffect !== 'none' && at !== null && !at.closest('[data-window]')?.contains(e.currentTarget)
}

/** Chooses what a checkpoint is compared with. Of what was done, the checkpoints that have it can be chosen. */
function Compare({ c, groups, other, choose }: { c: Checkpoint; groups: Group[]; other: Other; choose: (other: Other) => void }) {
  const others = groups.filter((g) => g.head !== c)
  const value = typeof other === 'string' ? other : other.commit
  return (
    <label className={css.compare}>
      Compared with
      <select value={value} data-testid="compare" onChange={(e) => choose(e.target.value === 'before' || e.target.value === 'now' ? e.target.value : (others.find((g) => g.id === e.target.value)?.head ?? 'before'))}>
        <option value="before">the checkpoint before it</option>
        <option value="now">what is there now</option>
        {others.map((g) => (
          <option key={g.id} value={g.id}>
            {sayDay(dayOf(g.head.time))}, {clock(g.head.time)}: {g.title.slice(0, 60)}
          </option>
        ))}
      </select>
    </label>
  )
}

/** The difference between two checkpoints; `again` asks anew after an error. */
function useDiff(from: string, to: string): [{ diff?: DiffAnswer; fault?: string }, () => void] {
  const [got, setGot] = useState<{ of: string; diff?: DiffAnswer; fault?: string }>({ of: '' })
  const [tries, setTries] = useState(0)
  const online = useConnection((s) => s.state === 'online')
  const of = `${from} ${to} ${tries}`
  useEffect(() => {
    if (!online) return
    let stop = false
    ask('checkpoint.diff', { from, to }, 30_000).then(
      (diff) => !stop && setGot({ of, diff }),
      (e: unknown) => !stop && setGot({ of, fault: e instanceof Error ? e.message : String(e) }),
    )
    return () => {
      stop = true
    }
  }, [from, to, of, online])
  return [got.of === of ? got : {}, () => setTries((n) => n + 1)]
}
