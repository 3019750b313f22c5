import type { ActionType, Payloads } from '../contract/types'
import { newID } from '../contract/id'
import { HostError, type Services } from './protocol'

export interface Action<T extends ActionType = ActionType> {
  type: T
  id: string
  data: Payloads[T]
  run?: string
  subject?: string
}

export type Acknowledged = Services['action'][1]

/** An action on its way, as it is kept and shown. */
export interface Queued {
  action: Action
  /** How often it was sent without getting an answer. */
  tries: number
  /** Why it is not sent any more until somebody sends it again; empty while it is sent. */
  stuck: string
}

/** Where actions are kept, each by itself: the tabs of one browser share it, and none may overwrite what another one put there. */
export interface Shelf {
  load(): Queued[]
  put(item: Queued): void
  drop(id: string, discarded: boolean): void
  /** Calls back when another tab removed an action: it was sent, or discarded. */
  watch?(gone: (id: string, discarded: boolean) => void): void
}

/** The largest action on the wire, in bytes: less than the host's limit. */
export const maxAction = 200_000
/** The most that a prompt may hold, as the contract says. */
export const maxPrompt = 32_768
/** How often an action is sent over a working connection before it is set aside so that the others can go. */
const maxTries = 6
/** How many actions may wait: about what a person does in some hours offline. */
const maxQueued = 500
/** The largest size of all of them together: what browsers store reliably. */
const maxKept = 380_000

/** Reads a stored value, one action or a list of them; what it does not understand is left out. */
export function readQueue(text: string | null | undefined): Queued[] {
  if (!text) return []
  try {
    const kept: unknown = JSON.parse(text)
    return (Array.isArray(kept) ? kept : [kept]).flatMap((k): Queued[] => {
      const item = k as Partial<Queued> | null
      const action = item?.action
      if (typeof action?.id !== 'string' || typeof action.type !== 'string') return []
      return [{ action, tries: typeof item?.tries === 'number' ? item.tries : 0, stuck: typeof item?.stuck === 'string' ? item.stuck : '' }]
    })
  } catch {
    return []
  }
}

/** A marker stored for a moment in place of a discarded action, so that other tabs learn of it. */
const thrownAway = 'discarded'

/**
 * Keeps actions in the storage of the page's own origin and with the console, which hands
 * them to a page on another origin. Each has a key of its own. If the storage is full or
 * forbidden, only a reload loses them.
 */
export function browserShelf(key: string, recalled: string[] | undefined, there: (id: string, value: string | null) => void): Shelf {
  const prefix = `${key}.`
  const store = (id: string, value: string | null) => {
    try {
      if (value === null) localStorage.removeItem(prefix + id)
      else localStorage.setItem(prefix + id, value)
    } catch {
      // The action is still held in memory.
    }
  }
  const shelf: Shelf = {
    load() {
      const found = new Map<string, Queued>()
      const add = (text: string | null | undefined) => readQueue(text).forEach((q) => found.set(q.action.id, q))
      recalled?.forEach(add)
      let older: string | null = null // all actions under one key, as older pages stored them
      try {
        older = localStorage.getItem(key)
        add(older)
        for (const k of Object.keys(localStorage)) if (k.startsWith(prefix)) add(localStorage.getItem(k))
      } catch {
        // Without storage nothing was kept.
      }
      // Ids are UUIDv7, so they sort by time whichever tab made them.
      const all = [...found.values()].sort((a, b) => (a.action.id < b.action.id ? -1 : 1))
      all.forEach((q) => shelf.put(q))
      if (older !== null) localStorage.removeItem(key)
      return all
    },
    put(item) {
      const text = JSON.stringify(item)
      there(item.action.id, text)
      store(item.action.id, text)
    },
    drop(id, discarded) {
      there(id, null)
      if (discarded) store(id, thrownAway)
      store(id, null)
    },
    watch(gone) {
      window.addEventListener('storage', (e) => {
        if (!e.key?.startsWith(prefix)) return
        if (e.newValue === null || e.newValue === thrownAway) gone(e.key.slice(prefix.length), e.newValue === thrownAway)
      })
    },
  }
  return shelf
}

interface Waiting extends Queued {
  /** The space that it counts for: none if it can never be sent (an older page left it), so that it does not keep others out. */
  size: number
  /** Whether somebody in this tab waits for the answer. */
  own: boolean
  resolve: (a: Acknowledged) => void
  reject: (e: unknown) => void
}

/**
 * Actions on their way to the log. They are checked before they are queued and sent in
 * order, one at a time; after a temporary failure they are sent again with the same id, and
 * they are kept until the log acknowledged them. One that can't be sent is set aside, so
 * that it does not block the others, until somebody sends it again or discards it.
 */
export class Outbox {
  private queue: Waiting[]
  private sending = false
  private wake: () => void = () => {}
  private send: ((a: Action) => Promise<Acknowledged>) | null = null

  constructor(
    private readonly shelf: Shelf,
    private readonly changed: (items: Queued[]) => void,
    private readonly refused: (a: Action, e: HostError) => void,
  ) {
    this.queue = shelf.load().map((q) => this.wait({ ...q, stuck: q.stuck || faultOf(q.action)?.message || '' }))
    shelf.watch?.((id, discarded) => this.gone(id, discarded))
    this.tell()
  }

  get waiting(): number {
    return this.queue.length
  }

  /** The ids of the actions that the log has not acknowledged yet. */
  get ids(): string[] {
    return this.queue.map((w) => w.action.id)
  }

  /** Queues an action. The promise settles when the log accepted or refused it, or when it was discarded. */
  post<T extends ActionType>(type: T, data: Payloads[T], about: { run?: string; subject?: string; id?: string } = {}): Promise<Acknowledged> {
    const { id = newID(), ...rest } = about
    const action: Action = { type, id, data, ...rest }
    const fault = faultOf(action) ?? this.full(action)
    if (fault) {
      this.refused(action, fault)
      return Promise.reject(fault)
    }
    return new Promise((resolve, reject) => {
      const w: Waiting = { ...this.wait({ action, tries: 0, stuck: '' }), own: true, resolve, reject }
      this.queue.push(w)
      this.keep(w)
      void this.pump()
    })
  }

  /** Sends an action again that was set aside. */
  again(id: string): void {
    const w = this.queue.find((x) => x.action.id === id)
    if (!w || faultOf(w.action)) return
    w.tries = 0
    w.stuck = ''
    this.keep(w)
    this.wake()
    void this.pump()
  }

  /** Discards an action. It may be in the log all the same, if its answer was lost. */
  discard(id: string): void {
    const w = this.queue.find((x) => x.action.id === id)
    if (!w) return
    this.drop(w, true)
    const e = new HostError('cancelled', 'It was discarded.')
    this.refused(w.action, e)
    w.reject(e)
  }

  /**
   * Another tab has sent or discarded an action. This tab does not send it any more, unless
   * somebody here waits for its answer: sent again, it gets the same answer from the log.
   */
  private gone(id: string, discarded: boolean): void {
    const w = this.queue.find((x) => x.action.id === id)
    if (!w || (w.own && !discarded)) return
    this.queue = this.queue.filter((x) => x !== w)
    this.tell()
    if (discarded) w.reject(new HostError('cancelled', 'It was discarded in another tab.'))
  }

  /** Goes online with a way to send, or offline with null. */
  connect(send: ((a: Action) => Promise<Acknowledged>) | null): void {
    this.send = send
    this.wake()
    void this.pump()
  }

  private wait(q: Queued): Waiting {
    return { ...q, size: faultOf(q.action) ? 0 : sizeOf(q.action), own: false, resolve: () => {}, reject: () => {} }
  }

  private full(action: Action): HostError | null {
    const others = this.queue.filter((w) => w.size > 0)
    const size = others.reduce((n, w) => n + w.size, sizeOf(action))
    if (others.length < maxQueued && size <= maxKept) return null
    return new HostError('exhausted', 'Too much waits to be sent already.', 'Wait for the connection, or discard some of what waits (at the bottom right).')
  }

  private async pump(): Promise<void> {
    if (this.sending) return
    this.sending = true
    try {
      for (;;) {
        const send = this.send
        const head = this.queue.find((w) => !w.stuck)
        if (!send || !head) return
        try {
          const answer = await send(head.action)
          this.drop(head)
          head.resolve(answer)
        } catch (e) {
          const failure = e instanceof HostError ? e : new HostError('unavailable', String(e))
          if (!this.queue.includes(head)) continue // it was discarded in the meantime
          if (failure.passing) {
            // A try during which the connection broke counts: the action may be what broke
            // it. A computer that is not available yet says nothing about the action.
            if (failure.code !== 'unavailable' && ++head.tries >= maxTries) head.stuck = failure.message
            this.keep(head)
            // The link notices a lost connection by itself and connects again.
            if (this.send === send && !head.stuck) await this.pause(500)
            continue
          }
          if (failure.code === 'disk_full' && isWritten(head.action)) {
            // It holds what somebody wrote, and there may be space again later.
            head.stuck = [failure.message, failure.hint].filter(Boolean).join('. ')
            this.keep(head)
            continue
          }
          this.drop(head)
          this.refused(head.action, failure)
          head.reject(failure)
        }
      }
    } finally {
      this.sending = false
    }
  }

  /** Waits, but not longer than the connection stays the same. */
  private pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms)
      this.wake = () => {
        clearTimeout(timer)
        resolve()
      }
    })
  }

  private drop(w: Waiting, discarded = false): void {
    this.queue = this.queue.filter((x) => x !== w)
    this.shelf.drop(w.action.id, discarded)
    this.tell()
  }

  private keep({ action, tries, stuck }: Waiting): void {
    this.shelf.put({ action, tries, stuck })
    this.tell()
  }

  private tell(): void {
    this.changed(this.list())
  }

  private list(): Queued[] {
    return this.queue.map(({ action, tries, stuck }) => ({ action, tries, stuck }))
  }
}

/** Whether an action holds text that a person wrote. */
function isWritten(action: Action): boolean {
  const data = action.data as { text?: unknown; answer?: unknown } | undefined
  return typeof data?.text === 'string' || typeof data?.answer === 'string'
}

function sizeOf(action: Action): number {
  return new TextEncoder().encode(JSON.stringify(action)).length
}

/** Why an action can't be sent at all, whatever the connection; null when it can. */
function faultOf(action: Action): HostError | null {
  const text = (action.data as { text?: unknown } | undefined)?.text
  if (typeof text === 'string' && new TextEncoder().encode(text).length > maxPrompt) {
    return new HostError('invalid', `The text is longer than the ${maxPrompt / 1024} KB that it may be.`, 'Put it in a file and say what to do with that.', 'text')
  }
  const size = sizeOf(action)
  if (size > maxAction) return new HostError('invalid', `It is ${Math.ceil(size / 1024)} KB; at most ${Math.floor(maxAction / 1024)} KB can be sent.`, 'Put it in a file.')
  return null
}
