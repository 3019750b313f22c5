import { useCallback, useEffect, useRef, useState, type KeyboardEvent } from 'react'
import { ArrowUp, ChevronRight, Sparkle, SquareSlash } from 'lucide-react'
import { keepThere } from '../link/console'
import { maxPrompt } from '../link/outbox'
import { kept } from '../link/page'
import { HostError } from '../link/protocol'
import parts from '../parts/parts.module.css'
import { keptThing } from '../stores/kept'
import { useConnection } from '../stores/connection'
import { useToasts } from '../stores/toasts'
import { size } from '../text/format'
import { possible } from './choices'
import { bringing } from './drops'
import { runCommand, shellCommands, submitPrompt, tell } from './intents'
import { complete, History, parse } from './prompt'
import { useAway } from './popover'
import { later } from './later'
import { usePromptBar } from './promptStore'
import { Uses } from './Uses'
import css from './PromptBar.module.css'

// Loaded when it is opened first: the bar itself is part of every first visit.
const Choices = later(() => import('./Choices'))

const historyKey = 'choir.prompts'
const history = keptThing('history', () => {
  const made = new History(readHistory())
  // On a new origin the storage is empty, and the console has the history.
  void kept.then(({ prompts }) => {
    if (made.lines.length === 0 && prompts) for (const l of linesOf(prompts)) made.add(l)
  })
  return made
})

/** The prompt bar: for an intention, a shell command (!) or a slash command. */
export function PromptBar() {
  const { line, chosen, focus, set, fill, choose, moved } = usePromptBar()
  const { provider, readOnly, state } = useConnection()
  const input = useRef<HTMLTextAreaElement>(null)
  const wrap = useRef<HTMLDivElement>(null)
  const uses = useRef<HTMLButtonElement>(null)
  const [choosing, setChoosing] = useState(false)
  useAway(choosing, wrap, useCallback(() => setChoosing(false), []))
  const [picked, setPicked] = useState(0)
  const [dismissed, setDismissed] = useState('')
  const [busy, setBusy] = useState(false)
  const [long, setLong] = useState('')
  const parsed = parse(line)
  const options = dismissed === line ? [] : complete(line, shellCommands)
  const [walking, setWalking] = useState(false)
  const at = Math.min(picked, options.length - 1)
  const kind = line.trimStart().startsWith('!') ? 'exec' : line.trimStart().startsWith('/') ? 'slash' : 'prompt'

  useEffect(() => {
    const el = input.current
    if (focus === 0 || !el) return
    el.focus()
    const [from, to] = usePromptBar.getState().caret ?? [el.value.length, el.value.length]
    el.setSelectionRange(from, to)
  }, [focus])

  const type = (text: string) => {
    set(text)
    setPicked(0)
    setWalking(false)
  }

  // A line of the history: the arrow keys go on through the history although the line could
  // be completed.
  const walk = (text: string) => {
    set(text)
    setPicked(0)
    setWalking(true)
    setDismissed(text)
  }

  const submit = async () => {
    if (parsed.kind === 'nothing' || readOnly || state === 'ended') return
    if (parsed.kind === 'prompt' && bytesOf(parsed.text) > maxPrompt) {
      setLong(line)
      return
    }
    const sent = line
    const how = parsed.kind === 'prompt' ? possible(chosen, provider?.choices, provider?.budgetUSD) : {}
    remember(sent)
    type('')
    setChoosing(false)
    // What was chosen was chosen for this prompt.
    if (parsed.kind === 'prompt') choose({})
    setBusy(true)
    try {
      if (parsed.kind === 'prompt') await submitPrompt(parsed.text, { how })
      else if (parsed.kind === 'exec') await runCommand(parsed.command)
      else {
        const command = shellCommands.find((c) => c.name === parsed.name)
        if (!command) throw new HostError('not_found', `There is no command /${parsed.name}.`, 'Type / to see them all; \\/ starts a prompt with a slash.')
        await command.run(parsed.args)
      }
    } catch (e) {
      tell(e)
      // What was typed comes back, unless the user began something new.
      if (usePromptBar.getState().line === '') {
        fill(sent)
        choose(how)
      }
    } finally {
      setBusy(false)
    }
  }

  const keepAsFile = async () => {
    setBusy(true)
    try {
      const path = await (await bringing()).putFile('prompt.txt', new Blob([line], { type: 'text/plain' }))
      fill(`Read ${path} and `)
    } catch (e) {
      tell(e)
    } finally {
      setBusy(false)
      setLong('')
    }
  }

  const key = (e: KeyboardEvent<HTMLTextAreaElement>) => {
    if (e.nativeEvent.isComposing) return
    const el = e.currentTarget
    const option = options[at]
    if (option && e.key === 'Tab' && !e.shiftKey) {
      e.preventDefault()
      type(option.line)
    } else if (e.key === 'Enter' && !e.shiftKey) {
      e.preventDefault()
      if (option && option.line.trimEnd() !== line.trimEnd() && picked > 0) type(option.line)
      else if (option && option.line !== line && !shellCommands.some((c) => parsed.kind === 'slash' && c.name === parsed.name)) type(option.line)
      else void submit()
    } else if (!walking && options.length > 0 && (e.key === 'ArrowDown' || e.key === 'ArrowUp')) {
      e.preventDefault()
      setPicked((at + (e.key === 'ArrowDown' ? 1 : options.length - 1)) % options.length)
    } else if (e.key === 'ArrowUp' && el.selectionStart === 0 && el.selectionEnd === 0 || (e.key === 'ArrowUp' && !line.includes('\n'))) {
      const before = history.back(line)
      if (before !== null) {
        e.preventDefault()
        walk(before)
      }
    } else if (e.key === 'ArrowDown' && el.selectionEnd === line.length) {
      const after = history.forth()
      if (after !== null) {
        e.preventDefault()
        walk(after)
      }
    } else if (e.key === 'Escape') {
      if (options.length > 0) setDismissed(line)
      else el.blur()
    }
  }

  const Lead = kind === 'exec' ? ChevronRight : kind === 'slash' ? SquareSlash : Sparkle
  return (
    <div className={css.wrap} ref={wrap}>
      {choosing && kind === 'prompt' && provider && (
        <Choices
          provider={provider}
          chosen={chosen}
          choose={choose}
          close={() => {
            setChoosing(false)
            uses.current?.focus()
          }}
        />
      )}
      {options.length > 0 && (
        <ul className={css.list} role="listbox" id="completions" aria-label="Completions">
          {options.map((o, i) => (
            <li
              key={o.line}
              id={`completion-${i}`}
              role="option"
              aria-selected={i === at}
              className={css.option}
              onPointerDown={(e) => {
                e.preventDefault()
                type(o.line)
              }}
            >
              <code>{o.label}</code>
              <span>{o.hint}</span>
            </li>
          ))}
        </ul>
      )}
      {long !== '' && long === line && (
        <section className={css.long} aria-label="Too long for a prompt" data-testid="too-long">
          <p>
            This is {size(bytesOf(line))}; a prompt holds {size(maxPrompt)}. It can go into a file of your workspace, and the prompt says what to do with that.
          </p>
          <button type="button" className={parts.ghost} onClick={() => setLong('')}>
            Back
          </button>
          <button type="button" className={parts.primary} disabled={busy} onClick={() => void keepAsFile()}>
            Put it in a file
          </button>
        </section>
      )}
      <form
        className={css.form}
        data-kind={kind}
        aria-label="Prompt"
        onSubmit={(e) => {
          e.preventDefault()
          void submit()
        }}
      >
        <span className={css.lead}>
          <Lead size={17} strokeWidth={1.9} aria-hidden />
        </span>
        <textarea
          ref={input}
          className={css.input}
          data-testid="prompt"
          data-framed
          data-things
          rows={1}
          value={line}
          disabled={readOnly || state === 'ended'}
          placeholder={readOnly ? 'This session may only read' : 'What should happen?'}
          aria-label="What should happen? Text asks, ! runs a command, / is a shell command"
          aria-controls={options.length > 0 ? 'completions' : undefined}
          aria-activedescendant={options.length > 0 ? `completion-${at}` : undefined}
          aria-autocomplete="list"
          spellCheck={kind === 'prompt'}
          autoCapitalize="off"
          onChange={(e) => type(e.target.value)}
          onKeyDown={key}
          onSelect={(e) => moved([e.currentTarget.selectionStart, e.currentTarget.selectionEnd])}
        />
        {kind === 'prompt' && provider && !readOnly ? (
          <Uses provider={provider} chosen={chosen} open={choosing} toggle={() => {
              setChoosing(!choosing)
              if (!choosing && !Choices.ready() && state !== 'online') useToasts.getState().say('warn', 'What can be chosen is not loaded yet', 'It comes with the connection.')
            }} button={uses} />
        ) : (
          <span className={css.uses} data-testid="uses">
            {kind === 'exec' ? 'runs in your workspace' : kind === 'slash' ? 'shell command' : ''}
          </span>
        )}
        <button type="submit" className={css.send} aria-label="Send" data-ready={parsed.kind !== 'nothing'} disabled={busy || parsed.kind === 'nothing'}>
          <ArrowUp size={17} strokeWidth={2.2} aria-hidden />
        </button>
      </form>
    </div>
  )
}

function bytesOf(text: string): number {
  return new TextEncoder().encode(text).length
}

function remember(line: string): void {
  const lines = history.add(line)
  try {
    // A line that long was pasted; the rest of the history is worth more.
    const text = JSON.stringify(lines.filter((l) => l.length < 4000).slice(-100))
    keepThere('prompts', text)
    localStorage.setItem(historyKey, text)
  } catch {
    // Without storage the history lasts as long as the page.
  }
}

function readHistory(): string[] {
  try {
    return linesOf(localStorage.getItem(historyKey) ?? '[]')
  } catch {
    return []
  }
}

function linesOf(text: string): string[] {
  try {
    const lines: unknown = JSON.parse(text)
    return Array.isArray(lines) ? lines.filter((l): l is string => typeof l === 'string') : []
  } catch {
    return []
  }
}
