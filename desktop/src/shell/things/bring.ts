import { putFile } from '../../link/files'
import { HostError } from '../../link/protocol'
import { keptStore, keptThing } from '../../stores/kept'
import { useToasts } from '../../stores/toasts'
import { commandLine, count } from '../../text/format'
import type { Brought } from '../drops'
import { ask } from '../intents'
import { usePromptBar } from '../promptStore'
import { gather, unread, type Item, type Left } from './gather'
import { placeOf, saysOf, type Place } from './places'
import { addresses, outcome, pastedName, plain, reasons } from './words'

export { putFile }

type Target = Exclude<Place, { why: string }>

/** What is being brought in: the file that is on its way, and how much of all has left. */
export interface Job {
  id: number
  at: number
  of: number
  sent: number
  bytes: number
  name: string
  stop: AbortController
}

/** What is said of a drop that did not come in whole. */
export interface Told {
  words: string
  reasons: string[]
  /** Brings in what is left of it. */
  again?: () => void
}

interface ThingsState {
  over: { words: string; no: boolean } | null
  /** The first one is under way, the others wait for it. */
  jobs: Job[]
  /** Stays until it is closed: a later drop takes nothing away that did not come in. */
  told: Told[]
  /** What came in last, for who does not see where. */
  done: string
}

export const useThings = keptStore<ThingsState>('things', () => ({ over: null, jobs: [], told: [], done: '' }))

/** How many paths one drop puts into a text. */
const mostPaths = 20
/** The longest text that is put into the prompt bar, in characters. */
const mostText = 1_000_000

// One drop after the other, so that two with the same names get different ones. The mark is where something is dragged over.
const own = keptThing('bringing in', () => ({ last: Promise.resolve(), next: 1, marked: null as Element | null }))

/** Shows where what is dragged would go, and says whether it may. */
export function over(target: EventTarget | null, files: boolean): 'copy' | 'none' {
  const place = placeOf(target, files)
  const no = 'why' in place
  mark(place.mark, no)
  const words = saysOf(place, files)
  if (useThings.getState().over?.words !== words) useThings.setState({ over: { words, no } })
  return no ? 'none' : 'copy'
}

/** Nothing is dragged any more. */
export function gone(): void {
  mark(null, false)
  useThings.setState({ over: null })
}

function mark(element: Element | null, no: boolean): void {
  if (own.marked !== element) own.marked?.removeAttribute('data-over')
  own.marked = element
  element?.setAttribute('data-over', no ? 'no' : 'yes')
}

/** Takes what was dropped or pasted at an element. */
export function take(brought: Brought, target: EventTarget | null): void {
  gone()
  const files = brought.things.length > 0
  const found = placeOf(target, files)
  // What is pasted as text while a window like Events has the focus is meant for the prompt bar.
  const place = 'why' in found && brought.pasted && !files ? placeOf(document.body, false) : found
  const { say } = useToasts.getState()
  if ('why' in place) return say('warn', 'Nothing was brought in.', place.why)
  if (files) {
    const things = brought.things.flatMap(([entry, file]) => (entry?.isDirectory || !file ? (entry ?? []) : brought.pasted ? new File([file], pastedName(file), { type: file.type }) : file))
    return start(place, (signal) => gather(things, signal))
  }
  const list = addresses(brought.addresses)
  const words = (inBar(place) && usePromptBar.getState().line.trimStart().startsWith('!') ? commandLine(list) : list.join(' ')) || brought.text.trim()
  if (words.length > mostText) say('warn', 'Nothing was brought in.', 'This text is longer than a million characters. Save it as a file and drop that.')
  else if (words) put(place, words)
  else say('warn', 'Nothing was brought in.', 'There is nothing in it that a page may read. Save it as a file and drop that.')
}

const inBar = (place: Target) => !('field' in place) || !place.field || place.field.matches('[data-testid=prompt]')

/** Puts words into a text field where its cursor is, or at the end of the prompt bar. */
function put(place: Target, words: string): void {
  const field = 'field' in place ? place.field : null
  const room = field && (field.maxLength < 0 || field.value.length + words.length < field.maxLength)
  if (!field?.isConnected || field.disabled || !room) {
    const { line, fill } = usePromptBar.getState()
    return fill(`${line}${line === '' || /\s$/.test(line) ? '' : ' '}${plain(line, words)} `)
  }
  const [from, to] = [field.selectionStart ?? field.value.length, field.selectionEnd ?? field.value.length]
  const before = field.value.slice(0, from)
  field.setRangeText(`${before === '' || /\s$/.test(before) ? '' : ' '}${inBar(place) ? plain(before, words) : words} `, from, to, 'end')
  field.dispatchEvent(new Event('input', { bubbles: true }))
  field.focus()
}

/** What is to be brought in, and the folders in the workspace that are those which were dropped. */
interface Listed {
  items: Item[]
  left: Left[]
  roots?: Map<string, string>
}

/** Brings things in, after what is being brought in already. */
function start(place: Target, list: (signal: AbortSignal) => Promise<Listed>): void {
  const job: Job = { id: own.next++, at: 0, of: 0, sent: 0, bytes: 0, name: '', stop: new AbortController() }
  useThings.setState((s) => ({ jobs: [...s.jobs, job], done: '' }))
  own.last = own.last
    .then(async () => {
      const listed = await list(job.stop.signal)
      await bringIn(place, job, listed)
    })
    .finally(() => useThings.setState((s) => ({ jobs: s.jobs.filter((j) => j.id !== job.id) })))
    .catch((e: unknown) => tellOf({ words: 'Something went wrong.', reasons: [String(e)] }))
}

const cancelled = new HostError('cancelled', 'It was cancelled.')

const tellOf = (told: Told) => useThings.setState((s) => ({ told: [...s.told, told] }))

/** It was read, or is tried again. */
export const closed = (told: Told): void => useThings.setState((s) => ({ told: s.told.filter((t) => t !== told) }))

/** Errors that are not one file's: the next one would meet the same. */
const ofAll = new Set(['unavailable', 'timeout', 'exhausted', 'denied', 'cancelled', 'closed'])

async function bringIn(place: Target, { id, stop: { signal } }: Job, { items, left, roots = new Map<string, string>() }: Listed): Promise<void> {
  const into = 'folder' in place ? place.folder : 'inbox'
  const show = (now: Partial<Job>) => useThings.setState((s) => ({ jobs: s.jobs.map((j) => (j.id === id ? { ...j, ...now } : j)) }))
  const failed: Left[] = []
  const paths = new Set<string>()
  const bytes = items.reduce((n, i) => n + i.file.size, 0)
  let ended = signal.aborted ? cancelled : null
  let at = 0
  for (let sent = 0; at < items.length && !ended; at++) {
    const item = items[at]!
    show({ at: at + 1, of: items.length, sent, bytes, name: item.name })
    try {
      const folder = await folderFor(into, item, roots)
      await item.file.slice(0, 1).arrayBuffer().catch((e: unknown) => Promise.reject(new HostError('invalid', unread(e))))
      const path = await putFile(item.name, item.file, { folder, signal, sent: (n) => show({ sent: sent + n }) })
      paths.add(item.folders.length > 0 ? roots.get(item.folders[0]!)! : path)
    } catch (e) {
      const error = e instanceof HostError ? e : new HostError('internal', String(e))
      if (ofAll.has(error.code)) {
        ended = error
        break
      }
      failed.push({ name: [...item.folders, item.name].join('/'), why: error.message })
    }
    sent += item.file.size
  }
  if (paths.size > 0 && !('folder' in place)) put(place, [...paths].slice(0, mostPaths).map((p) => commandLine([p])).join(' '))
  const rest = items.slice(at)
  const came = at - failed.length
  const why = reasons([...left, ...failed])
  if (paths.size > mostPaths && !('folder' in place)) why.push(`The first ${mostPaths} paths are in the text; all of them are in ${into}.`)
  if (ended || why.length > 0) tellOf({ words: outcome(came, rest.length, ended), reasons: why, ...(rest.length > 0 ? { again: () => start(place, () => Promise.resolve({ items: rest, left: [], roots })) } : {}) })
  else useThings.setState({ done: `${count(came, 'file')} came in.` })
}

/** The folder that a file goes into. A dropped folder has a name that nothing has, as a file does; the folders in it keep theirs. */
async function folderFor(into: string, { folders }: Item, roots: Map<string, string>): Promise<string> {
  const [first, ...more] = folders
  if (first === undefined) return into
  const root = roots.get(first) ?? (await freeFolder(into, first))
  roots.set(first, root)
  return [root, ...more].join('/')
}

const within = (folder: string, name: string) => (folder === '' ? name : `${folder}/${name}`)

async function freeFolder(into: string, name: string): Promise<string> {
  for (let n = 1; n <= 100; n++) {
    const path = within(into, n === 1 ? name : `${name}-${n}`)
    try {
      await ask('files.list', { path, limit: 1 }, 20_000)
    } catch (e) {
      if (e instanceof HostError && e.code === 'not_found') return path
      throw e
    }
  }
  throw new HostError('conflict', 'there are too many folders of this name')
}
