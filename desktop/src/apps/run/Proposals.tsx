import { useEffect, useState } from 'react'
import { Check, GitPullRequestArrow } from 'lucide-react'
import { HostError, type Proposal } from '../../link/protocol'
import { Diff } from '../../parts/Diff'
import parts from '../../parts/parts.module.css'
import { ask, openThing, tell } from '../../shell/intents'
import { useConnection } from '../../stores/connection'
import { useProposals } from '../../stores/proposals'
import { useRuns } from '../../stores/runs'
import { useToasts } from '../../stores/toasts'
import { authorName, clock, count, dayOf } from '../../text/format'
import css from './Proposals.module.css'

const none: Proposal[] = []

/** A document's open proposals, newest first, requested again whenever they may have changed. */
export function useOpenProposals(document: string | undefined): Proposal[] {
  const online = useConnection((s) => s.state === 'online')
  const list = useProposals((s) => (document ? s.open[document] : undefined)) ?? none
  const asked = useProposals((s) => (document ? (s.stale[document] ?? 0) : 0))
  useEffect(() => {
    if (!online || !document) return
    let stop = false
    const load = async () => {
      const { proposals } = await ask('proposal.list', { document })
      const whole = await Promise.all(proposals.map((p) => ask('proposal.get', { document, proposal: p.id })))
      if (!stop) useProposals.getState().put(document, asked, whole.filter((p) => p.status === 'open'))
    }
    // A run that has just begun has no document yet.
    load().catch((e: unknown) => !stop && !(e instanceof HostError && e.code === 'not_found') && tell(e))
    return () => {
      stop = true
    }
  }, [document, online, asked])
  return list
}

/** The proposals that wait for the user's decision, shown above the document that they would change. */
export function Proposals({ list, run }: { list: Proposal[]; run: string }) {
  if (list.length === 0) return null
  return (
    <div className={css.proposals} role="group" aria-label={count(list.length, 'proposal')}>
      {list.map((p) => (
        <Card key={p.id} proposal={p} run={run} />
      ))}
    </div>
  )
}

function Card({ proposal: p, run }: { proposal: Proposal; run: string }) {
  const [busy, setBusy] = useState(false)
  const blocked = useConnection((s) => s.readOnly || s.state !== 'online')
  const other = useRuns((s) => (p.run && p.run !== run ? s.runs[p.run] : undefined))
  const resolve = async (accept: boolean) => {
    setBusy(true)
    try {
      const done = await ask(accept ? 'proposal.accept' : 'proposal.dismiss', { document: p.document, proposal: p.id })
      if (accept && done.revision) useToasts.getState().say('ok', 'Accepted', `It is in revision ${done.revision}; what was there before stays in the history.`)
    } catch (e) {
      tell(e)
      setBusy(false)
    }
  }
  const day = dayOf(p.time)
  return (
    <article className={css.card} data-testid="proposal">
      <header>
        <GitPullRequestArrow size={17} aria-hidden />
        <h2>{authorName(p.author)} proposes a change</h2>
        <time dateTime={p.time}>{day === 'Today' ? clock(p.time) : `${day}, ${clock(p.time)}`}</time>
      </header>
      <p>{effect(p)}</p>
      {p.diff && <Diff text={p.diff} prose />}
      {p.truncated && <p>The change is longer than what is shown.</p>}
      <footer>
        <button type="button" className={parts.primary} disabled={busy || blocked} onClick={() => void resolve(true)}>
          <Check size={14} aria-hidden /> Accept
        </button>
        <button type="button" className={parts.button} disabled={busy || blocked} onClick={() => void resolve(false)}>
          Dismiss
        </button>
        <span />
        {other && (
          <button type="button" className={parts.ghost} onClick={() => openThing('run', other.run, other.prompt)}>
            Show its run
          </button>
        )}
      </footer>
    </article>
  )
}

/** Says in words what accepting a proposal does to what was written since its base. */
function effect(p: Proposal): string {
  if (!p.diff) return 'The document says the same already.'
  if (p.base === 0) return 'It was not made from any revision: accepting it replaces the whole text.'
  if (!p.overlaps) return 'It fits beside what was written meanwhile.'
  return `It was made from revision ${p.base}. ${p.overlaps === 1 ? 'In one place' : `In ${count(p.overlaps, 'place')}`} it would replace what was written since.`
}
