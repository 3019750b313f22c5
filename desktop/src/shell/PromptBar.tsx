import { useEffect, useRef, useState, type KeyboardEvent } from 'react'
import { ArrowUp, ChevronRight, Sparkle, SquareSlash } from 'lucide-react'
import { HostError } from '../link/protocol'
import { keptThing } from '../stores/kept'
import { useConnection } from '../stores/connection'
import { money, oneLine } from '../text/format'
import { runCommand, shellCommands, submitPrompt, tell } from './intents'
import { complete, History, parse } from './prompt'
import { usePromptBar } from './promptStore'
import css from './PromptBar.module.css'

const historyKey = 'choir.prompts'
const history = keptThing('history', () => new History(readHistory()))

/** The one bar: what you want, a command, or a slash command. */
export function PromptBar() {
  const { line, focus, set, fill } = usePromptBar()
  const { provider, readOnly, state } = useConnection()
  const input = useRef<HTMLTextAreaElement>(null)
  const [picked, setPicked] = useState(0)
  const [dismissed, setDismissed] = useState('')
  const [busy, setBusy] = useState(false)
  const parsed = parse(line)
  const options = dismissed === line ? [] : complete(line, shellCommands)
  const at = Math.min(picked, options.length - 1)
  const kind = line.trimStart().startsWith('!') ? 'exec' : line.trimStart().startsWith('/') ? 'slash' : 'prompt'

  useEffect(() => {
    const el = input.current
    if (focus === 0 || !el) return
    el.focus()
    el.setSelectionRange(el.value.length, el.value.length)
  }, [focus])

  const type = (text: string) => {
    set(text)
    setPicked(0)
  }

  const submit = async () => {
    if (parsed.kind === 'nothing' || readOnly || state === 'ended') return
    const sent = line
    remember(sent)
    type('')
    setBusy(true)
    try {
      if (parsed.kind === 'prompt') await submitPrompt(parsed.text)
      else if (parsed.kind === 'exec') await runCommand(parsed.command)
      else {
        const command = shellCommands.find((c) => c.name === parsed.name)
        if (!command) throw new HostError('not_found', `There is no command /${parsed.name}.`, 'Type / to see them all; \\/ starts a prompt with a slash.')
        await command.run(parsed.args)
      }
    } catch (e) {
      tell(e)
      // What was typed comes back, unless something new was begun.
      if (usePromptBar.getState().line === '') fill(sent)
    } finally {
      setBusy(false)
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
    } else if (options.length > 0 && (e.key === 'ArrowDown' || e.key === 'ArrowUp')) {
      e.preventDefault()
      setPicked((at + (e.key === 'ArrowDown' ? 1 : options.length - 1)) % options.length)
    } else if (e.key === 'ArrowUp' && el.selectionStart === 0 && el.selectionEnd === 0 || (e.key === 'ArrowUp' && !line.includes('\n'))) {
      const before = history.back(line)
      if (before !== null) {
        e.preventDefault()
        type(before)
      }
    } else if (e.key === 'ArrowDown' && el.selectionEnd === line.length) {
      const after = history.forth()
      if (after !== null) {
        e.preventDefault()
        type(after)
      }
    } else if (e.key === 'Escape') {
      if (options.length > 0) setDismissed(line)
      else el.blur()
    }
  }

  const Lead = kind === 'exec' ? ChevronRight : kind === 'slash' ? SquareSlash : Sparkle
  return (
    <div className={css.wrap}>
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
        />
        <span className={css.uses} data-testid="uses">
          {kind === 'exec' ? 'runs in your workspace' : kind === 'slash' ? 'shell command' : provider && <Uses {...provider} />}
        </span>
        <button type="submit" className={css.send} aria-label="Send" data-ready={parsed.kind !== 'nothing'} disabled={busy || parsed.kind === 'nothing'}>
          <ArrowUp size={17} strokeWidth={2.2} aria-hidden />
        </button>
      </form>
    </div>
  )
}

function Uses({ name, model, rehearsal, network, budgetUSD }: { name: string; model: string; rehearsal: boolean; network?: string; budgetUSD?: number }) {
  const facts = [network && network !== 'none' ? `network ${network}` : '', budgetUSD ? `≤ ${money(budgetUSD)}` : ''].filter(Boolean)
  return (
    <>
      <b>{rehearsal ? 'rehearsal' : oneLine(model || name, 28)}</b>
      {facts.length > 0 && !rehearsal && <span>{facts.join(' · ')}</span>}
    </>
  )
}

function remember(line: string): void {
  const lines = history.add(line)
  try {
    localStorage.setItem(historyKey, JSON.stringify(lines))
  } catch {
    // History then lasts as long as the page.
  }
}

function readHistory(): string[] {
  try {
    const lines: unknown = JSON.parse(localStorage.getItem(historyKey) ?? '[]')
    return Array.isArray(lines) ? lines.filter((l): l is string => typeof l === 'string') : []
  } catch {
    return []
  }
}
