import type { Change, Check, Citation, Command } from '../../contract/contract'
import { ended, type RunView, type ToolCall } from '../../stores/runs'
import { commandLine, count, oneLine } from '../../text/format'

// What a run did, as sentences for people. None says more than the log does.

/** A sentence with something in the middle that is shown as code: a command, a path. */
export type Words = [text: string, code?: string, then?: string]

/** The words for a command that ran: how it ended only where it did not end well. */
export function ranWords({ argv, exit_code }: Pick<Command, 'argv' | 'exit_code'>): Words {
  const line = oneLine(commandLine(argv ?? []), 120)
  if (exit_code === -1) return ['Could not start', line]
  return exit_code === 0 ? ['Ran', line] : ['Ran', line, `it ended with exit code ${exit_code}`]
}

/** The words for several commands of one task. */
export function commandsWords(commands: Pick<Command, 'exit_code'>[]): string {
  const wrong = commands.filter((c) => c.exit_code !== 0).length
  return `Ran ${count(commands.length, 'command')}${wrong > 0 ? `, ${wrong} ended with an error code` : ''}`
}

/** The words for changed files: where the same happened to all of them, that. */
export function changedWords(changes: Pick<Change, 'op'>[]): string {
  const verbs = { added: 'Added', deleted: 'Removed', modified: 'Changed', mode: 'Changed' } as const
  const all = new Set(changes.map((c) => verbs[c.op] ?? 'Changed'))
  return `${all.size === 1 ? [...all][0] : 'Changed'} ${count(changes.length, 'file')}`
}

/**
 * The words for a check. How many tests ran is known only where their runner's own report says it; of those of a check that passed, all did,
 * and how many of a check that failed did not is not recorded.
 */
export function checkWords({ name, status, command, runner, ran = 0, skipped = 0 }: Check): string {
  const counted = runner !== undefined && runner !== 'exit code' && ran > 0
  const left = skipped > 0 ? `, ${skipped.toLocaleString('en')} skipped` : ''
  if (status === 'pass') return counted ? `${count(ran, 'test')} passed${left}` : `The check “${oneLine(name, 80)}” passed`
  if (status === 'fail') return counted ? `Tests failed: ${count(ran, 'test')} ran${left}` : `The check “${oneLine(name, 80)}” failed with exit code ${command.exit_code}`
  return `The check “${oneLine(name, 80)}” could not be run`
}

export function citedWords({ title, address, source }: Pick<Citation, 'title' | 'address' | 'source'>): string {
  return `Quoted “${oneLine(title || address || source, 80)}”`
}

const did = new Map<string, readonly [now: string, done: string]>([
  ['read', ['Reading', 'Read']],
  ['edit', ['Editing', 'Edited']],
  ['multi_edit', ['Editing', 'Edited']],
  ['write', ['Writing', 'Wrote']],
  ['bash', ['Running', 'Ran']],
  ['run', ['Running', 'Ran']],
  ['grep', ['Searching for', 'Searched for']],
  ['glob', ['Looking for', 'Looked for']],
  ['ls', ['Listing', 'Listed']],
  ['web_fetch', ['Reading', 'Read']],
  ['web_search', ['Searching the web for', 'Searched the web for']],
])

/** The words for a call of a tool: what it does while nobody knows how it ended, then what it did. */
export function callWords({ name, args, ok }: Pick<ToolCall, 'name' | 'args' | 'ok'>): Words {
  const about = subjectOf(args)
  const [now, done] = did.get(name) ?? [`Using ${oneLine(name, 40)}`, `Used ${oneLine(name, 40)}`]
  const words: Words = [ok ? done : now]
  if (about) words.push(about)
  if (ok === false) words[2] = 'it failed'
  return words
}

/** A sentence as plain text. */
export const plainWords = ([text, code, then]: Words): string => `${code ? `${text} ${code}` : text}${then ? `: ${then}` : ''}`

function subjectOf(args: unknown): string {
  if (typeof args !== 'object' || args === null) return ''
  const a = args as Record<string, unknown>
  for (const key of ['command', 'path', 'pattern', 'query', 'url', 'argv']) {
    const v = a[key]
    if (typeof v === 'string') return oneLine(v, 100)
    if (Array.isArray(v)) return oneLine(commandLine(v.map(String)), 100)
  }
  return ''
}

/** What is being done now, or waited for; '' once the run has ended. */
export function nowWords(run: RunView): string {
  if (ended(run.status)) return ''
  if (run.paused) return 'Paused: it goes on when you resume it.'
  if (run.approvals.some((a) => !a.answer)) return 'Waits for your word on the console.'
  if (run.questions.some((q) => q.answer === undefined)) return 'Waits for your answer.'
  if (run.looks.length > 0) return 'Waits until you have looked at what it made.'
  if (run.waits.length > 0) return 'Waits for its model.'
  const why = run.reason ? `: ${oneLine(run.reason, 400)}` : ''
  if (run.status === 'waiting') return `Waits${why || '.'}`
  if (run.status === 'queued') return 'Queued: it has not begun.'
  if (run.status === 'planning') return `Planning${why || ' what to do.'}`
  return workWords(run)
}

function workWords(run: RunView): string {
  const steps = run.plan.filter((s) => s.status === 'active')
  if (steps.length > 0) return `Working on: ${oneLine(steps[0]!.text, 120)}${steps.length > 1 ? `, and ${steps.length - 1} more` : ''}`
  const call = run.tasks.findLast((t) => t.status === 'working' && t.calls.length > 0)?.calls.at(-1)
  return call && call.ok === undefined ? `Working: ${plainWords(callWords(call)).replace(/^\w/, (c) => c.toLowerCase())}` : 'Working.'
}

/** What a model said of a run, without the rehearsal's notice: the run's window has it once, on a line of its own. */
export function withoutNotice({ provider }: Pick<RunView, 'provider'>, text: string): string {
  return provider === 'rehearsal' ? text.replace(/(?:^|\n+)This was a rehearsal:[^\n]*/g, '').trim() : text
}

/** Whether two texts say the same, but for spaces, case and how they end. */
export function sameWords(a: string, b: string): boolean {
  const plain = (s: string) => s.replace(/\s+/g, ' ').trim().replace(/[.!?…]+$/, '').toLowerCase()
  return plain(a) === plain(b)
}

/** Whether a text has all that another one says, so that it is not said twice. */
export function saysAlready(text: string, said: string): boolean {
  const plain = (s: string) => s.replace(/\s+/g, ' ').trim()
  return plain(text).includes(plain(said))
}
