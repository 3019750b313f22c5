import { useMemo, useState, type KeyboardEvent } from 'react'
import { BookmarkPlus, ChevronRight, ChevronsLeft, Flag, History, Sparkles, Terminal, Undo2, UserRound } from 'lucide-react'
import type { Checkpoint } from '../../link/protocol'
import { Mark } from '../../parts/Mark'
import parts from '../../parts/parts.module.css'
import { Skeleton } from '../../parts/Skeleton'
import { ask, makeCheckpoint, tell } from '../../shell/intents'
import { usePromptBar } from '../../shell/promptStore'
import { beginningOf } from '../../shell/beginning'
import { useCheckpoints } from '../../stores/checkpoints'
import { useConnection } from '../../stores/connection'
import { useRuns } from '../../stores/runs'
import { clock, count, dayOf } from '../../text/format'
import { Detail } from './Detail'
import { groupsOf, sayDay, type Group } from './groups'
import { Restore } from './Restore'
import css from './TimeTravel.module.css'
import { kindWords, leftOf, madeBy } from './words'

const pictures: Record<Group['what'], typeof Undo2> = { run: Sparkles, command: Terminal, act: UserRound, beginning: Flag, itself: History }

/** All checkpoints, what each one changed, and how to return to it. */
export default function TimeTravel() {
  const { checkpoints, more } = useCheckpoints()
  const { loaded, readOnly } = useConnection()
  const pointed = usePromptBar((s) => s.pointed)
  const [chosen, setChosen] = useState<string | null>(null)
  const [asking, setAsking] = useState<'restore' | 'undo' | null>(null)
  const [seen, setSeen] = useState<typeof pointed>(null)
  const [phoneDetail, setPhoneDetail] = useState(false)
  const [byKey, setByKey] = useState(false)
  const [path, setPath] = useState<string>()
  const [opened, setOpened] = useState<ReadonlySet<string>>(new Set())
  const runs = useRuns((s) => s.runs)
  const groups = useMemo(() => groupsOf(checkpoints, (run) => runs[run]?.prompt), [checkpoints, runs])
  const selected = checkpoints.find((c) => c.commit === chosen) ?? groups[0]?.head
  const group = groups.find((g) => g.head === selected || g.folded.includes(selected!))
  const isOpen = (g: Group) => opened.has(g.id) || (g === group && g.head !== selected)

  // A slash command has pointed at a checkpoint since this was last drawn.
  if (pointed && pointed !== seen) {
    setSeen(pointed)
    setChosen(pointed.commit)
    setPath(undefined)
    setAsking('restore')
    setPhoneDetail(true)
  }

  const settle = () => {
    setAsking(null)
    setPath(undefined)
    usePromptBar.setState({ pointed: null })
  }
  const choose = (c: Checkpoint) => {
    setChosen(c.commit)
    settle()
    setPhoneDetail(true)
  }
  const toBeginning = (key: boolean) => {
    const first = beginningOf(checkpoints)
    if (!first) return
    setPath(undefined)
    setChosen(first)
    setByKey(key)
    setAsking('restore')
    setPhoneDetail(true)
  }
  const restore = (only?: string) => {
    setByKey(false)
    setPath(only)
    setAsking('restore')
  }
  const fold = (g: Group) => {
    const next = new Set(opened)
    if (isOpen(g)) next.delete(g.id)
    else next.add(g.id)
    setOpened(next)
    if (isOpen(g) && g === group) choose(g.head)
  }
  const step = (e: KeyboardEvent) => {
    const by = e.key === 'ArrowDown' || e.key === 'ArrowLeft' ? 1 : e.key === 'ArrowUp' || e.key === 'ArrowRight' ? -1 : 0
    if (e.key === 'Home' && !readOnly && !(e.target instanceof HTMLInputElement)) {
      e.preventDefault()
      toBeginning(true)
      return
    }
    const rows = groups.flatMap((g) => [g.head, ...(isOpen(g) ? g.folded : [])])
    const next = rows[rows.indexOf(selected!) + by]
    if (by === 0 || !next) return
    e.preventDefault()
    choose(next)
  }
  const older = async () => {
    const got = await ask('checkpoint.list', { before: checkpoints.at(-1)!.sequence, limit: 100 })
    useCheckpoints.getState().older(got.checkpoints, got.more)
  }

  if (!loaded) return <Skeleton />
  if (!selected) {
    return (
      <div className={parts.empty}>
        <h2>No checkpoint yet</h2>
        <p>Before and after every task, and whenever you ask, everything here is kept. Then you can come back to it.</p>
        {!readOnly && (
          <button type="button" className={parts.primary} onClick={() => void makeCheckpoint('').catch(tell)}>
            Keep everything now
          </button>
        )}
      </div>
    )
  }
  return (
    <div className={css.page} data-detail={phoneDetail} onKeyDown={step}>
      <header className={css.top}>
        <Scrubber checkpoints={checkpoints} selected={selected} choose={choose} />
        {!readOnly && (
          <>
            <button type="button" className={parts.button} data-testid="undo" aria-expanded={asking === 'undo'} onClick={() => setAsking('undo')}>
              <Undo2 size={14} aria-hidden /> Undo the last thing
            </button>
            <button type="button" className={parts.ghost} data-testid="beginning" aria-keyshortcuts="Home" title="Back to before anything was done here (Home)" onClick={() => toBeginning(false)}>
              <ChevronsLeft size={15} aria-hidden /> Before all that
            </button>
            <button type="button" className={parts.ghost} onClick={() => void makeCheckpoint('').catch(tell)}>
              <BookmarkPlus size={15} aria-hidden /> Checkpoint
            </button>
          </>
        )}
      </header>
      <nav className={css.list} aria-label="Checkpoints">
        {groups.map((g, i) => (
          <div key={g.id} role="group" aria-label={g.title} data-testid="done" data-what={g.what}>
            {(i === 0 || dayOf(groups[i - 1]!.head.time) !== dayOf(g.head.time)) && <h2>{dayOf(g.head.time)}</h2>}
            <Row c={g.head} title={g.title} group={g} current={g.head === selected} choose={choose} />
            {g.folded.length > 0 && (
              <button type="button" className={css.fold} aria-expanded={isOpen(g)} data-testid="fold" onClick={() => fold(g)}>
                <ChevronRight size={13} aria-hidden /> {g.what === 'itself' ? `${g.folded.length} earlier` : `${g.folded.length} kept on the way`}
              </button>
            )}
            {isOpen(g) && g.folded.map((c) => <Row key={c.commit} c={c} title={c.message} current={c === selected} choose={choose} />)}
          </div>
        ))}
        {more && (
          <button type="button" className={parts.ghost} onClick={() => void older().catch(tell)}>
            Earlier
          </button>
        )}
      </nav>
      <section className={css.detail} aria-label="Checkpoint">
        {asking === 'undo' ? (
          <Restore key="undo" target="last" close={settle} />
        ) : asking === 'restore' ? (
          <Restore key={`restore ${selected.commit} ${path ?? ''}`} target={{ checkpoint: selected, ...(path !== undefined && { path }) }} close={settle} byKey={byKey} />
        ) : null}
        <Detail key={`detail ${selected.commit}`} c={selected} groups={groups} asking={asking !== null} title={group?.head === selected ? group.title : selected.message} restore={restore} back={() => setPhoneDetail(false)} readOnly={readOnly} />
      </section>
    </div>
  )
}

/** One checkpoint in the list; of a group the one that has what was done. */
function Row({ c, title, group, current, choose }: { c: Checkpoint; title: string; group?: Group; current: boolean; choose: (c: Checkpoint) => void }) {
  const Picture = group && pictures[group.what]
  return (
    <button type="button" className={css.row} data-testid="checkpoint" data-checkpoint={c.commit} data-kind={c.kind} data-folded={!group} aria-current={current} onClick={() => choose(c)}>
      {c.verified === 'unknown' ? Picture ? <Picture size={15} aria-hidden /> : <i aria-hidden /> : <Mark kind={c.verified} />}
      <span className={css.message}>{title}</span>
      <time>{clock(c.time)}</time>
      <small>
        <span title={c.actor}>{madeBy(c)}</span>, {kindWords[c.kind]}
        {c.files > 0 && `, ${count(c.files, 'file')}`}
        {leftOf(c) > 0 && <span className={css.left}>, {leftOf(c).toLocaleString('en')} not in it</span>}
      </small>
    </button>
  )
}

/** The checkpoints as bars on a line, oldest on the left: taller for more files, coloured by how they were verified. */
function Scrubber({ checkpoints, selected, choose }: { checkpoints: Checkpoint[]; selected: Checkpoint; choose: (c: Checkpoint) => void }) {
  const shown = checkpoints.slice(0, 60).reverse()
  return (
    <div className={css.scrubber}>
      <div className={css.ticks} aria-hidden>
        {shown.map((c) => (
          <span key={c.commit} data-mark={c.verified} data-selected={c === selected} data-size={c.files > 20 ? 3 : c.files > 3 ? 2 : 1} onPointerDown={() => choose(c)} />
        ))}
      </div>
      <input
        type="range"
        aria-label="Checkpoint, oldest to newest"
        aria-valuetext={`${selected.message}, ${sayDay(dayOf(selected.time))}, ${clock(selected.time)}`}
        min={0}
        max={Math.max(0, shown.length - 1)}
        value={Math.max(0, shown.indexOf(selected))}
        onChange={(e) => {
          const c = shown[Number(e.target.value)]
          if (c) choose(c)
        }}
        onKeyDown={(e) => e.stopPropagation()}
      />
    </div>
  )
}
