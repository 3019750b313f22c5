import { useEffect, useState, type Ref } from 'react'
import { X, ZoomIn } from 'lucide-react'
import type { Event } from '../../contract/types'
import parts from '../../parts/parts.module.css'
import { Skeleton } from '../../parts/Skeleton'
import { ask, openThing } from '../../shell/intents'
import { useConnection } from '../../stores/connection'
import { useEvents } from '../../stores/events'
import { describe } from '../../text/describe'
import { clockSeconds, duration, oneLine } from '../../text/format'
import { agentOf, copyOf, partsOf, readContents, type Contents } from './contents'
import { KindIcon, standingWord } from './Kind'
import { CopyButton } from './RunTrace'
import css from './Trace.module.css'
import { kindWords, textOf, took, type Node } from './tree'

interface Props {
  /** Its window's. */
  label: string
  /** Its heading, which has the focus once the details are entered. */
  head: Ref<HTMLHeadingElement>
  node: Node
  run: string
  origin: number
  now: number
  close: () => void
  select: (n: Node) => void
  zoom: (n: Node) => void
}

/** What is known of one span: what went in and came out, who caused it, its attributes, its events. */
export function Details({ label, head, node, run, origin, now, close, select, zoom }: Props) {
  const { span } = node
  const [contents, setContents] = useState<Contents | null>(null)
  const [fault, setFault] = useState('')
  const online = useConnection((s) => s.state === 'online')

  useEffect(() => {
    if (!online) return
    let stop = false
    readContents(span, (after, limit) => ask('run.get', { run, after, limit }, 30_000)).then(
      (c) => {
        if (stop) return
        setContents(c)
        setFault('')
      },
      (e: unknown) => !stop && setFault(e instanceof Error ? e.message : String(e)),
    )
    return () => {
      stop = true
    }
    // Its events change only with these: what a later answer says of the same span is another object.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [run, span.id, span.from, span.to, online])

  const at = node.from - origin
  const name = `${kindWords[node.kind]} ${node.title}`.trim()
  return (
    <aside
      className={css.details}
      aria-label={`Details of ${name} in ${label}`}
      data-testid="trace-details"
      onKeyDown={(e) => {
        if (e.key !== 'Escape') return
        e.stopPropagation()
        close()
      }}
    >
      <header>
        <KindIcon kind={node.kind} />
        <h3 ref={head} tabIndex={-1}>
          {name}
        </h3>
        <span className={css.gap} />
        <button type="button" className={parts.ghost} onClick={() => zoom(node)}>
          <ZoomIn size={14} aria-hidden /> Zoom
        </button>
        <CopyButton text={() => copyOf(span, contents ?? {})} label="Copy row" />
        <button type="button" className={parts.icon} aria-label="Close the details" onClick={close}>
          <X size={15} aria-hidden />
        </button>
      </header>
      <div className={css.inside} tabIndex={0} role="group" aria-label="Details">
        <p className={css.facts}>
          {capital(standingWord(node.standing))}
          {span.error && `: ${span.error.replaceAll('_', ' ')}`}. Began {at > 0 ? `${duration(at)} into the run, ` : ''}at {clockSeconds(span.start)}; {Number.isNaN(node.to) ? `goes on since ${took(node, now)}` : `took ${took(node, now)}`}.
        </p>
        {fault && <p role="alert">What it says could not be read: {fault} Close the details and open them again to retry.</p>}
        {!contents && !fault && <Skeleton />}
        {contents &&
          partsOf(span, contents).map((p, i) => (
            <section key={i}>
              <h4>{p.title}</h4>
              <pre tabIndex={0} data-part={p.title}>
                {p.text}
              </pre>
              {p.note && <p className={css.note}>{p.note}</p>}
            </section>
          ))}
        {contents && <Causes node={node} contents={contents} select={select} />}
        <section>
          <h4>Attributes</h4>
          <dl className={css.attributes}>
            {Object.entries(span.attributes ?? {})
              .sort(([a], [b]) => a.localeCompare(b))
              .map(([key, value]) => (
                <div key={key}>
                  <dt>{key}</dt>
                  <dd>{String(value)}</dd>
                </div>
              ))}
            <div>
              <dt>id</dt>
              <dd>{span.id}</dd>
            </div>
          </dl>
        </section>
        {contents && (contents.from ?? contents.to) && (
          <details className={css.raw}>
            <summary>Events</summary>
            <pre tabIndex={0}>{[contents.from, contents.to === contents.from ? undefined : contents.to].filter(Boolean).map((e) => JSON.stringify(e, null, 2)).join('\n')}</pre>
          </details>
        )}
      </div>
    </aside>
  )
}

const capital = (s: string) => s.charAt(0).toUpperCase() + s.slice(1)

/** Who caused a span: what it is a part of, whose work it is, and the event behind it. */
function Causes({ node, contents, select }: { node: Node; contents: Contents; select: (n: Node) => void }) {
  const begun = contents.from
  const cause = useEvents((s) => (begun?.causation ? s.events.find((e) => e.id === begun.causation) : undefined))
  const above: Node[] = []
  for (let up = node.parent; up; up = up.parent) above.push(up)
  const task = [node, ...above].find((n) => n.kind === 'task')
  const agent = agentOf([node, ...above].map((n) => n.span))
  return (
    <section>
      <h4>Caused by</h4>
      <dl className={css.causes}>
        {node.parent && (
          <div>
            <dt>Part of</dt>
            <dd>
              {above.reverse().map((n, i) => (
                <span key={n.span.id}>
                  {i > 0 && ', '}
                  <button type="button" onClick={() => select(n)}>
                    {`${kindWords[n.kind]} ${n.title}`.trim()}
                  </button>
                </span>
              ))}
            </dd>
          </div>
        )}
        {agent && (
          <div>
            <dt>Agent</dt>
            <dd>{agent}</dd>
          </div>
        )}
        {task && task !== node && (
          <div>
            <dt>Task</dt>
            <dd>
              <code>{textOf(task.span, 'choir.task.id')}</code>
            </dd>
          </div>
        )}
        {begun && (
          <div>
            <dt>Written by</dt>
            <dd>
              {begun.actor ?? begun.source}, event {begun.sequence}
            </dd>
          </div>
        )}
        {begun?.causation && (
          <div>
            <dt>Because of</dt>
            <dd>{cause ? because(cause) : <code>{begun.causation}</code>}</dd>
          </div>
        )}
        {begun?.run && node.parent === null && (
          <div>
            <dt>Run</dt>
            <dd>
              <button type="button" onClick={() => openThing('run', begun.run!, 'Run')}>
                {begun.run}
              </button>
            </dd>
          </div>
        )}
      </dl>
    </section>
  )
}

function because(e: Event): string {
  const said = describe(e)
  return `${said?.title ?? e.type}${said?.detail ? `: ${oneLine(said.detail, 120)}` : ''} (event ${e.sequence})`
}
