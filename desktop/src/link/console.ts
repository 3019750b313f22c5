// The console's page frames this one. It keeps what must outlive this page, whatever origin
// the next page has, and passes the text cursor's position on.

import { keptThing } from '../stores/kept'

const origin = `${location.protocol}//${location.host.replace(/^[^.]+\.desk\./, 'console.')}`
const framed = window.parent !== window

export type KeptName = 'outbox' | 'prompts' | 'bar'
/** What the console keeps; of the outbox each item by itself. */
export type Kept = Partial<Record<Exclude<KeptName, 'outbox'>, string>> & { outbox?: string[] }

interface Said {
  type?: string
  kept?: Kept
  focus?: boolean
  bar?: string | null
  run?: unknown
}

const takers = keptThing('console', () => {
  const set = new Set<(said: Said) => void>()
  if (framed) {
    window.addEventListener('message', (e) => {
      if (e.source !== window.parent || e.origin !== origin || typeof e.data !== 'object' || e.data === null) return
      for (const take of set) take(e.data as Said)
    })
  }
  return set
})

/** Calls back with each message from the console, until the returned function is called. */
export function onConsole(take: (said: Said) => void): () => void {
  takers.add(take)
  return () => takers.delete(take)
}

/** Whether a console frames this page. */
export const consoleThere = framed

/** Asks the console to show its place for something that only a person decides. It does so if somebody has just used this page, and takes no word from it. */
export function openOnConsole(place: 'inbox', id: string): void {
  if (framed) window.parent.postMessage({ type: 'choir.open', place, id }, origin)
}

/** Gives the console a value to keep; null makes it forget the value. Of the outbox, one item. */
export function keepThere(name: KeptName, value: string | null, item?: string): void {
  if (framed) window.parent.postMessage({ type: 'choir.keep', name, value, item }, origin)
}

/** What the console has kept; nothing when no console answers in time. */
export function recall(patience = 1500): Promise<Kept> {
  if (!framed) return Promise.resolve({})
  return new Promise((resolve) => {
    const done = (kept: Kept) => {
      clearTimeout(timer)
      stop()
      resolve(kept)
    }
    const timer = setTimeout(() => done({}), patience)
    const stop = onConsole((said) => {
      if (said.type === 'choir.recalled') done(said.kept ?? {})
    })
    window.parent.postMessage({ type: 'choir.recall' }, origin)
  })
}
