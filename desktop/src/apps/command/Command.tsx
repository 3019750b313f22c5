import { useEffect, useRef } from 'react'
import { RotateCcw, Square } from 'lucide-react'
import { Pill } from '../../parts/Mark'
import parts from '../../parts/parts.module.css'
import { Skeleton } from '../../parts/Skeleton'
import { ask, runCommand, tell } from '../../shell/intents'
import { useCommands } from '../../stores/commands'
import { useConnection } from '../../stores/connection'
import { duration } from '../../text/format'
import { plain } from './plain'
import css from './Command.module.css'
import type { AppProps } from '../types'

/** The output of one of the user's own commands, as it comes. */
export default function Command({ props }: AppProps) {
  const id = props.command ?? ''
  const command = useCommands((s) => s.commands[id])
  const online = useConnection((s) => s.state === 'online')
  const end = useRef<HTMLDivElement>(null)
  const log = useRef<HTMLDivElement>(null)
  const running = command?.running ?? true
  const shown = command?.chunks.length ?? 0

  // What is kept on the host fills every hole: a reload, a lost chunk, an end
  // that was not seen. While it runs, look again now and then.
  useEffect(() => {
    if (!online || !id) return
    let stop = false
    let timer: ReturnType<typeof setTimeout> | undefined
    const look = async () => {
      useCommands.getState().begin(id, '')
      try {
        for (let more = true; more && !stop; ) {
          const after = (useCommands.getState().commands[id]?.next ?? 0) - 1
          const got = await ask('exec.output', { command: id, after })
          if (stop) return
          useCommands.getState().fill(id, got.chunks, got.running, got.exit_code, got.truncated)
          more = got.chunks.length > 0
        }
      } catch (e) {
        if (!stop) tell(e)
        return
      }
      if (!stop && useCommands.getState().commands[id]?.running) timer = setTimeout(() => void look(), 2000)
    }
    void look()
    return () => {
      stop = true
      clearTimeout(timer)
    }
  }, [id, online, running])

  useEffect(() => {
    const el = log.current
    // Follow the end unless the reader has scrolled up.
    if (el && el.scrollHeight - el.scrollTop - el.clientHeight < 120) end.current?.scrollIntoView({ block: 'end' })
  }, [shown])

  if (!command) return <Skeleton />
  const ok = command.exit === 0
  return (
    <div className={css.page}>
      <header className={css.head}>
        <code>{command.line || 'command'}</code>
        {running ? <Pill kind="active" text="running" /> : <Pill kind={command.exit === undefined ? 'unknown' : ok ? 'pass' : 'fail'} text={command.exit === undefined ? 'ended' : `exit ${command.exit}`} />}
        {command.ms !== undefined && <span className={css.time}>{duration(command.ms)}</span>}
        {running ? (
          <button type="button" className={parts.button} onClick={() => void ask('exec.stop', { command: id }).catch(tell)}>
            <Square size={12} aria-hidden /> Stop
          </button>
        ) : (
          command.line && (
            <button type="button" className={parts.ghost} onClick={() => void runCommand(command.line).catch(tell)}>
              <RotateCcw size={13} aria-hidden /> Again
            </button>
          )
        )}
      </header>
      <div className={css.output} ref={log} tabIndex={0} role="log" aria-label="Output">
        {command.truncated && <p className={css.note}>The beginning was left out.</p>}
        <pre>
          {command.chunks.map((c) => (
            <span key={c.n} data-stream={c.stream}>
              {plain(c.text)}
            </span>
          ))}
        </pre>
        {!running && shown === 0 && <p className={css.note}>It wrote nothing.</p>}
        <div ref={end} />
      </div>
    </div>
  )
}
