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

export interface Shelf {
  load(): Action[]
  save(actions: Action[]): void
}

/** Keeps actions in localStorage under a key per computer; a full or forbidden store only costs their survival of a reload. */
export function browserShelf(key: string): Shelf {
  return {
    load() {
      try {
        const kept: unknown = JSON.parse(localStorage.getItem(key) ?? '[]')
        return Array.isArray(kept) ? (kept as Action[]).filter((a) => typeof a?.id === 'string' && typeof a.type === 'string') : []
      } catch {
        return []
      }
    },
    save(actions) {
      try {
        if (actions.length === 0) localStorage.removeItem(key)
        else localStorage.setItem(key, JSON.stringify(actions))
      } catch {
        // Memory still holds them.
      }
    },
  }
}

interface Waiting {
  action: Action
  resolve: (a: Acknowledged) => void
  reject: (e: unknown) => void
}

/**
 * Actions on their way to the log: sent in order, one at a time, again with the
 * same id after a passing failure, kept until the log acknowledged them.
 */
export class Outbox {
  private queue: Waiting[]
  private sending = false
  private wake: () => void = () => {}
  private send: ((a: Action) => Promise<Acknowledged>) | null = null

  constructor(
    private readonly shelf: Shelf,
    private readonly changed: (waiting: number) => void,
    private readonly refused: (a: Action, e: HostError) => void,
  ) {
    this.queue = shelf.load().map((action) => ({ action, resolve: () => {}, reject: () => {} }))
    changed(this.queue.length)
  }

  get waiting(): number {
    return this.queue.length
  }

  /** The ids of what the log has not acknowledged yet. */
  get ids(): string[] {
    return this.queue.map((w) => w.action.id)
  }

  /** Queues an action; the promise settles when the log took it or refused it. */
  post<T extends ActionType>(type: T, data: Payloads[T], about: { run?: string; subject?: string; id?: string } = {}): Promise<Acknowledged> {
    const { id = newID(), ...rest } = about
    const action: Action = { type, id, data, ...rest }
    return new Promise((resolve, reject) => {
      this.queue.push({ action, resolve, reject })
      this.keep()
      void this.pump()
    })
  }

  /** Goes online with a way to send; null goes offline. */
  connect(send: ((a: Action) => Promise<Acknowledged>) | null): void {
    this.send = send
    this.wake()
    void this.pump()
  }

  private async pump(): Promise<void> {
    if (this.sending) return
    this.sending = true
    try {
      for (let send = this.send; send && this.queue.length > 0; send = this.send) {
        const head = this.queue[0]!
        try {
          const answer = await send(head.action)
          this.drop(head)
          head.resolve(answer)
        } catch (e) {
          const failure = e instanceof HostError ? e : new HostError('unavailable', String(e))
          if (failure.passing) {
            // The link notices a lost connection by itself and connects again.
            if (this.send === send) await this.pause(500)
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
    this.shelf.save(this.queue.map((w) => w.action))
    this.changed(this.queue.length)
  }
}
