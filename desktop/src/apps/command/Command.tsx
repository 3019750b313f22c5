import { useEffect, useLayoutEffect, useRef, useState } from 'react'
import { RotateCcw, Square } from 'lucide-react'
import { HostError } from '../../link/protocol'
import { Pill } from '../../parts/Mark'
import parts from '../../parts/parts.module.css'
import { Skeleton } from '../../parts/Skeleton'
import { ask, runCommand, tell } from '../../shell/intents'
import { useCommands } from '../../stores/commands'
import { useConnection } from '../../stores/connection'
import { count, duration } from '../../text/format'
import { plain } from './plain'
import css from './Command.module.css'
import type { AppProps } from '../types'

/** The output of one of the user's own commands, as it comes. */
export default function Command({ props }: AppProps) {
  const id = props.command ?? ''
  const command = useCommands((s) => s.commands[id])
  const online = useConnection((s) => s.state === 'online')
  const log = useRef<HTMLDivElement>(null)
  // Whether the end is in sight and the output is followed; how far it was scrolled when that was decided.
  const follows = useRef({ so: true, top: 0 })
  const [gone, setGone] = useState(false)
  const running = command?.running ?? true
  const shown = command?.next ?? 0
  const line = command?.line || props.line || ''

  // Each piece of output is requested when the last one has been painted, so a command that
  // writes faster waits for this page. After a reload the host sends what it has kept.
  useEffect(() => {
    if (!online || !id) return
    let stop = false
    const look = async () => {
      useCommands.getState().begin(id, '')
      for (let more = true; more && !stop; ) {
        const after = (useCommands.getState().commands[id]?.next ?? 0) - 1
        const got = await ask('exec.output', { command: id, after, wait: true }, 20_000).catch(later)
        if (stop) return
        if (!got) continue
        useCommands.getState().fill(id, got.chunks, got.running, got.exit_code, got.truncated, got.unkept)
        more = got.running || got.chunks.length > 0
        if (more) await painted()
      }
    }
    look().catch((e: unknown) => {
      // Lost output is reported where it would be shown.
      if (stop) return
      if (e instanceof HostError && e.code === 'not_found') setGone(true)
      else tell(e)
    })
    return () => {
      stop = true
    }
  }, [id, online])

  // Scrolls to the end unless the reader has scrolled up.
  useLayoutEffect(() => {
    const el = log.current
    if (el && follows.current.so) el.scrollTop = el.scrollHeight
  }, [shown, running, gone])

  // The text grows between two scrolls, so that the end may be far away although nobody has
  // scrolled: only a scroll upwards ends the following.
  const scrolled = (el: HTMLElement) => {
    const atEnd = el.scrollHeight - el.scrollTop - el.clientHeight < 24
    follows.current = { so: atEnd || (follows.current.so && el.scrollTop >= follows.current.top), top: el.scrollTop }
  }

  if (!command) return <Skeleton />
  const ok = command.exit === 0
  const unseen = command.exit === undefined || command.exit < 0 // nobody saw it end
  return (
    <div className={css.page}>
      <header className={css.head}>
        <code>{line || 'command'}</code>
        {running ? <Pill kind="active" text="running" /> : <Pill kind={unseen ? 'unknown' : ok ? 'pass' : 'fail'} text={unseen ? 'ended' : `exit ${command.exit}`} />}
        {command.ms !== undefined && !unseen && <span className={css.time}>{duration(command.ms)}</span>}
        {running ? (
          <button type="button" className={parts.button} onClick={() => void ask('exec.stop', { command: id }).catch(tell)}>
            <Square size={12} aria-hidden /> Stop
          </button>
        ) : (
          line && (
            <button type="button" className={parts.ghost} onClick={() => void runCommand(line).catch(tell)}>
              <RotateCcw size={13} aria-hidden /> Again
            </button>
          )
        )}
      </header>
      <div className={css.output} ref={log} onScroll={(e) => scrolled(e.currentTarget)} tabIndex={0} role="log" aria-label="Output">
        {command.truncated && <p className={css.note}>The beginning was left out.</p>}
        <pre>
          {command.output.map((c) => (
            <span key={c.n} data-stream={c.stream}>
              {plain(c.text)}
            </span>
          ))}
        </pre>
        {!running && shown === 0 && !gone && !unseen && <p className={css.note}>It wrote nothing.</p>}
        {gone && <p className={css.note}>{shown === 0 ? 'Its output is not kept any more.' : 'What it wrote after this is not kept.'}</p>}
        {unseen && command.reason && <p className={css.note}>{sentence(command.reason)}</p>}
        {command.unkept && (
          <div className={css.unkept} data-testid="unkept">
            <p>It left behind what no checkpoint holds:</p>
            <ul>
              {command.unkept.paths.slice(0, 5).map((p) => (
                <li key={p.path}>
                  <code>{p.path}</code> {p.reason}
                </li>
              ))}
              {command.unkept.files + command.unkept.ignored > 5 && <li>and {count(command.unkept.files + command.unkept.ignored - Math.min(5, command.unkept.paths.length), 'more')}</li>}
            </ul>
          </div>
        )}
      </div>
    </div>
  )
}

const sentence = (s: string): string => `${s.charAt(0).toUpperCase()}${s.slice(1)}${s.endsWith('.') ? '' : '.'}`

/** A request that may succeed later is made again: the host has kept the output that came in the meantime. */
async function later(e: unknown): Promise<null> {
  if (!(e instanceof HostError && e.passing)) throw e
  await new Promise((r) => setTimeout(r, 1000))
  return null
}

/** Resolves when the page has had time for something else; a hidden page gets no animation frames. */
function painted(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 80))
}
