import type { ActionType, Payloads } from '../contract/types'
import { newID } from '../contract/id'
import { HostError } from './protocol'

export interface Action<T extends ActionType = ActionType> {
  type: T
  id: string
  data: Payloads[T]
  run?: string
  subject?: string
}

export interface Acknowledged {
  sequence: number
  run?: string
}

/** An action on its way, as it is kept and shown. */
export interface Queued {
  action: Action
  /** How often it was sent without an answer. */
  tries: number
  /** Why it is not sent any more unless somebody says so; empty while it is. */
  stuck: string
}

export interface Shelf {
  load(): Queued[]
  save(items: Queued[]): void
}

/** The most that one action may be on the wire: less than the host takes. */
export const maxAction = 200_000
/** The most that a prompt may hold, as the contract says. */
export const maxPrompt = 32_768
/** How often an action is sent while the line is up before it stands aside for the others. */
const maxTries = 6
/** How many actions may wait: what a person does in hours without a line. */
const maxQueued = 500
/** The most that all of them may be together: what browsers keep for certain. */
const maxKept = 380_000

/** Reads what a shelf kept; what it does not understand is left out. */
export function readQueue(text: string | null | undefined): Queued[] {
  if (!text) return []
  try {
    const kept: unknown = JSON.parse(text)
    if (!Array.isArray(kept)) return []
    return kept.flatMap((k): Queued[] => {
      const item = k as Partial<Queued> | null
      const action = item?.action
      if (typeof action?.id !== 'string' || typeof action.type !== 'string') return []
      return [{ action, tries: typeof item?.tries === 'number' ? item.tries : 0, stuck: typeof item?.stuck === 'string' ? item.stuck : '' }]
    })
  } catch {
    return []
  }
}

/**
 * Keeps actions where the page's own origin does and with the console, which has
 * them for a page on another origin. A full or forbidden store only costs their
 * survival of a reload.
 */
export function browserShelf(key: string, recalled: string | undefined, there: (value: string | null) => void): Shelf {
  return {
    load() {
      let own: Queued[] = []
      try {
        own = readQueue(localStorage.getItem(key))
      } catch {
        // Nothing is kept here.
      }
      const known = new Set(own.map((q) => q.action.id))
      return [...readQueue(recalled).filter((q) => !known.has(q.action.id)), ...own]
    },
    save(items) {
      const text = items.length === 0 ? null : JSON.stringify(items)
      there(text)
      try {
        if (text === null) localStorage.removeItem(key)
        else localStorage.setItem(key, text)
      } catch {
        // Memory still holds them.
      }
    },
  }
}

interface Waiting extends Queued {
  size: number
  resolve: (a: Acknowledged) => void
  reject: (e: unknown) => void
}

/**
 * Actions on their way to the log: checked before they are queued, sent in
 * order, one at a time, again with the same id after a passing failure, kept
 * until the log acknowledged them. One that can't be sent stands aside, so that
 * it blocks no other, until somebody sends it again or throws it away.
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
    this.tell()
  }

  get waiting(): number {
    return this.queue.length
  }

  /** The ids of what the log has not acknowledged yet. */
  get ids(): string[] {
    return this.queue.map((w) => w.action.id)
  }

  /** Queues an action; the promise settles when the log took it or refused it, or it was thrown away. */
  post<T extends ActionType>(type: T, data: Payloads[T], about: { run?: string; subject?: string; id?: string } = {}): Promise<Acknowledged> {
    const { id = newID(), ...rest } = about
    const action: Action = { type, id, data, ...rest }
    const fault = faultOf(action) ?? this.full(action)
    if (fault) {
      this.refused(action, fault)
      return Promise.reject(fault)
    }
    return new Promise((resolve, reject) => {
      this.queue.push({ ...this.wait({ action, tries: 0, stuck: '' }), resolve, reject })
      this.keep()
      void this.pump()
    })
  }

  /** Sends one again that stood aside. */
  again(id: string): void {
    const w = this.queue.find((x) => x.action.id === id)
    if (!w || faultOf(w.action)) return
    w.tries = 0
    w.stuck = ''
    this.keep()
    this.wake()
    void this.pump()
  }

  /** Throws one away. It may have reached the log if an answer to it was lost. */
  discard(id: string): void {
    const w = this.queue.find((x) => x.action.id === id)
    if (!w) return
    this.drop(w)
    const e = new HostError('cancelled', 'It was discarded.')
    this.refused(w.action, e)
    w.reject(e)
  }

  /** Goes online with a way to send; null goes offline. */
  connect(send: ((a: Action) => Promise<Acknowledged>) | null): void {
    this.send = send
    this.wake()
    void this.pump()
  }

  private wait(q: Queued): Waiting {
    return { ...q, size: sizeOf(q.action), resolve: () => {}, reject: () => {} }
  }

  private full(action: Action): HostError | null {
    const size = this.queue.reduce((n, w) => n + w.size, sizeOf(action))
    if (this.queue.length < maxQueued && size <= maxKept) return null
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
          if (!this.queue.includes(head)) continue // thrown away meanwhile
          if (failure.passing) {
            // A try that the line broke under counts: it may be what broke it. A
            // computer that is not there yet says nothing about the action.
            if (failure.code !== 'unavailable' && ++head.tries >= maxTries) head.stuck = failure.message
            this.keep()
            // The link notices a lost connection by itself and connects again.
            if (this.send === send && !head.stuck) await this.pause(500)
            continue
          }
          if (failure.code === 'disk_full' && isWritten(head.action)) {
            // It is somebody's words, and there will be space again.
            head.stuck = [failure.message, failure.hint].filter(Boolean).join('. ')
            this.keep()
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

  private drop(w: Waiting): void {
    this.queue = this.queue.filter((x) => x !== w)
    this.keep()
  }

  private keep(): void {
    this.shelf.save(this.list())
    this.tell()
  }

  private tell(): void {
    this.changed(this.list())
  }

  private list(): Queued[] {
    return this.queue.map(({ action, tries, stuck }) => ({ action, tries, stuck }))
  }
}

/** Whether an action holds what a person wrote. */
function isWritten(action: Action): boolean {
  const data = action.data as { text?: unknown; answer?: unknown } | undefined
  return typeof data?.text === 'string' || typeof data?.answer === 'string'
}

function sizeOf(action: Action): number {
  return new TextEncoder().encode(JSON.stringify(action)).length
}

/** Why an action can't be sent at all, whatever the line; null when it can. */
function faultOf(action: Action): HostError | null {
  const text = (action.data as { text?: unknown } | undefined)?.text
  if (typeof text === 'string' && new TextEncoder().encode(text).length > maxPrompt) {
    return new HostError('invalid', `The text is longer than the ${maxPrompt / 1024} KB that it may be.`, 'Put it in a file and say what to do with that.', 'text')
  }
  const size = sizeOf(action)
  if (size > maxAction) return new HostError('invalid', `It is ${Math.ceil(size / 1024)} KB; at most ${Math.floor(maxAction / 1024)} KB can be sent.`, 'Put it in a file.')
  return null
}
