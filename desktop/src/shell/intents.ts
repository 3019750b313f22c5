import { preload, useApps, visible, type App } from '../apps/registry'
import type { ActionType, Frame, Payloads, Theme } from '../contract/types'
import { newID } from '../contract/id'
import { link } from '../link/page'
import { HostError, type Service, type Services } from '../link/protocol'
import { useCommands } from '../stores/commands'
import { useConnection } from '../stores/connection'
import { useCheckpoints } from '../stores/checkpoints'
import { useRuns } from '../stores/runs'
import { useTheme } from '../stores/theme'
import { useToasts } from '../stores/toasts'
import { front, stacked, useWindows } from '../stores/windows'
import { clock, count, oneLine, short } from '../text/format'
import { builtIn } from '../theme/themes'
import { beginningOf } from './beginning'
import { carried, type Chosen } from './choices'
import { beside, cascade, larger } from './geometry'
import type { SlashCommand } from './prompt'
import { usePromptBar } from './promptStore'
import { frameOf, useScreen } from './screen'

// What the shell and its apps can do, in one place. Components call these functions and
// never the link.

/** Asks a service; throws a HostError. */
export function ask<S extends Service>(service: S, request: Services[S][0], timeoutMs?: number): Promise<Services[S][1]> {
  return link.ask(service, request, timeoutMs)
}

/** Posts an action; settles when the log has accepted it. A refusal is also shown as a toast. */
export function act<T extends ActionType>(type: T, data: Payloads[T], about: { run?: string } = {}) {
  return link.act(type, data, about)
}

/** Shows the user an error, in the host's words. */
export function tell(e: unknown): void {
  if (e instanceof HostError) useToasts.getState().say('danger', e.message, e.hint)
  else useToasts.getState().say('danger', 'Something went wrong.', e instanceof Error ? e.message : String(e))
}

/** Opens an app's window, or raises the front one of those that show the same thing. What is about to be read with the window in front can be placed beside that. Returns the window's id, or null when there is no such app. */
export function openApp(id: string, props: Record<string, string> = {}, title?: string, place: 'cascade' | 'beside' = 'cascade'): string | null {
  const app = useApps.getState().apps[id]
  if (!app) return null
  const { windows, open, raise } = useWindows.getState()
  const same = stacked(windows).findLast((w) => w.app === id && (app.single || sameProps(w.props ?? {}, props)))
  if (same) {
    raise(same.window)
    return same.window
  }
  const { area: here, phone } = useScreen.getState()
  // On a phone a window fills the screen whatever its frame is; the frame is for the larger
  // screens where it is shown later.
  const area = phone ? larger : here
  const taken: Frame[] = Object.values(windows).map((w) => w.frame)
  const read = place === 'beside' && !phone ? front(windows) : undefined
  const frame = read ? beside(frameOf(read, area), taken, app.window, area) : cascade(taken, app.window, area)
  return open({ app: id, title: title ?? app.name, frame, state: 'normal', props })
}

/** The app that opens a kind of thing, such as "run". */
export function appFor(kind: string): App | undefined {
  return Object.values(useApps.getState().apps).find((a) => a.opens?.includes(kind))
}

/** Opens a thing with the app for its kind, which may get more than the thing's id; a run beside what is read, narrower if need be. */
export function openThing(kind: string, id: string, title: string, more: Record<string, string> = {}): void {
  const app = appFor(kind)
  if (app) openApp(app.id, { [kind]: id, ...more }, oneLine(title, 80), kind === 'run' ? 'beside' : 'cascade')
  else useToasts.getState().say('warn', `No app opens a ${kind}.`)
}

/** Sends a prompt, which may go on from a run that has ended; opens the run's window as soon as the prompt is in the log. */
export async function submitPrompt(text: string, more: { continues?: string; how?: Chosen } = {}): Promise<void> {
  const app = appFor('run')
  if (app) preload(app) // while the log takes the prompt
  const { run } = await link.act('prompt.submitted', { text, ...(more.continues ? { continues: more.continues } : {}), ...carried(more.how ?? {}) })
  if (!run) return
  follow(run)
  openThing('run', run, text)
}

/** Has a run's model output shown as it arrives. */
export const follow = (run: string): void => link.follow(run)

// How many characters a window's property may have in the log.
const mostProp = 4096

/** Runs the user's own command and opens a window on its output. */
export async function runCommand(line: string): Promise<void> {
  const id = newID()
  useCommands.getState().begin(id, line)
  const answer = await ask('exec.run', { id, argv: ['sh', '-c', line] })
  if (answer.command !== id) useCommands.getState().begin(answer.command, line)
  // The window has the line for a page that does not know it: after a reload, in another browser.
  openThing('command', answer.command, line, line.length <= mostProp ? { line } : {})
}

// The new file replaces the old one in one rename, so that a reader sees either theme
// whole.
const writeTheme = 'mkdir -p artifacts/system && printf %s "$1" > artifacts/system/.theme.json.new && mv artifacts/system/.theme.json.new artifacts/system/theme.json'

/** Shows a theme at once and writes its file with a command of the user's; if that fails, the old theme is shown again. */
export async function setTheme(theme: Theme): Promise<void> {
  const { theme: before, apply } = useTheme.getState()
  if (!apply(theme)) return
  try {
    const id = newID()
    await ask('exec.run', { id, argv: ['sh', '-c', writeTheme, 'sh', `${JSON.stringify(theme, null, 2)}\n`] })
    await ended(id)
  } catch (e) {
    apply(before)
    throw e
  }
}

/** Waits until a command has ended, at most half a minute, and throws if it failed. */
async function ended(command: string): Promise<void> {
  for (const until = Date.now() + 30_000; Date.now() < until; await new Promise((r) => setTimeout(r, 250))) {
    const { running, exit_code, chunks } = await ask('exec.output', { command, after: -1 })
    if (running) continue
    if (exit_code === 0) return
    throw new HostError('internal', `The command ended with ${exit_code}.`, oneLine(chunks.map((c) => c.text).join('')))
  }
  throw new HostError('timeout', 'The command did not end in time.')
}

export async function makeCheckpoint(message: string): Promise<void> {
  const { created, commit, unkept } = await ask('checkpoint.create', { message: message || 'Checkpoint by hand' }, 60_000)
  const left = unkept.files
  if (!created) useToasts.getState().say('plain', 'Nothing has changed', `The last checkpoint, ${short(commit)}, still holds everything${left > 0 ? ` but ${count(left, 'file')}` : ''}.`)
  else if (left > 0) useToasts.getState().say('warn', `${count(left, 'file')} ${left === 1 ? 'is' : 'are'} not in it`, unkept.paths.filter((p) => !p.ignored).slice(0, 3).map((p) => `${p.path} ${p.reason}`).join('; '))
}

export interface ShellCommand extends SlashCommand {
  run(args: string): void | Promise<void>
}

/** The slash commands that exist. */
export const shellCommands: ShellCommand[] = [
  {
    name: 'open', args: 'app', hint: 'Open an app, or raise its window',
    values: () => visible(useApps.getState().apps).map((a) => ({ value: a.id, hint: a.name })),
    run(args) {
      const apps = visible(useApps.getState().apps)
      const app = apps.find((a) => a.id === args || a.name.toLowerCase() === args.toLowerCase())
      if (!app) throw new HostError('not_found', `There is no app called “${args}”.`, `Try ${apps.map((a) => a.id).join(', ')}.`)
      openApp(app.id)
    },
  },
  {
    name: 'new', args: '', hint: 'Start on a clean desktop: minimise every window',
    run() {
      const { windows, place } = useWindows.getState()
      for (const w of Object.values(windows)) if (w.state !== 'minimised') place(w.window, w.frame, 'minimised')
    },
  },
  { name: 'checkpoint', args: 'message', hint: 'Keep everything as it is now', run: (args) => makeCheckpoint(args) },
  {
    name: 'restore', args: 'checkpoint', hint: 'Choose a checkpoint to go back to',
    values: () =>
      [{ value: 'beginning', hint: 'before anything was done here' }, ...useCheckpoints.getState().checkpoints.slice(0, 30).map((c) => ({ value: short(c.commit), hint: `${clock(c.time)}  ${oneLine(c.message, 60)}` }))],
    run(args) {
      const { checkpoints } = useCheckpoints.getState()
      const wanted = args === 'beginning' ? beginningOf(checkpoints) : args
      const found = wanted && checkpoints.find((c) => c.commit.startsWith(wanted))
      if (args && !found) throw new HostError('not_found', `There is no checkpoint ${args}.`, 'Open Time Travel to see them.')
      const id = openApp('timetravel')
      if (id && found) usePromptBar.getState().point(found.commit)
    },
  },
  {
    name: 'theme', args: 'name', hint: 'Change the theme',
    values: () => builtIn.map((t) => ({ value: t.name.toLowerCase(), hint: t.scheme })),
    run(args) {
      const theme = builtIn.find((t) => t.name.toLowerCase() === args.toLowerCase())
      if (!theme) throw new HostError('not_found', `There is no theme called “${args}”.`, `Try ${builtIn.map((t) => t.name.toLowerCase()).join(' or ')}.`)
      return setTheme(theme)
    },
  },
  {
    name: 'runs', args: '', hint: 'Open the newest run',
    run() {
      const newest = Object.values(useRuns.getState().runs).sort((a, b) => b.started.localeCompare(a.started))[0]
      if (newest) openThing('run', newest.run, newest.prompt)
      else useToasts.getState().say('plain', 'No run yet', 'Type what you want below.')
    },
  },
  { name: 'help', args: '', hint: 'Keys and commands', run: () => void openApp('help') },
]

/** Why nothing can be written now; null when it can. */
export function whyReadOnly(): string | null {
  const { readOnly, state } = useConnection.getState()
  if (readOnly) return 'This session may only read.'
  return state === 'ended' ? 'This session has ended.' : null
}

function sameProps(a: Record<string, string>, b: Record<string, string>): boolean {
  const keys = Object.keys(a)
  return keys.length === Object.keys(b).length && keys.every((k) => a[k] === b[k])
}
