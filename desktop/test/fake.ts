import type { Event } from '../src/contract/types'
import type { Bus } from '../src/link/bus'
import { HostError, type Session, type Snapshot } from '../src/link/protocol'

const cid = 'abcdefghij012345'

export function event(sequence: number, type = 'file.written', data: unknown = { path: `f${sequence}`, size: 1 }, extra: Partial<Event> = {}): Event {
  return {
    specversion: '1.0', id: `e-${sequence}`, source: `/computers/${cid}/user`, type, time: '2026-01-02T03:04:05Z', data, sequence, epoch: 1, computer: cid, ...extra,
  }
}

export const session = (lastSequence = 0): Session => ({
  cid, name: 'Studio', user: 'u', nats: { url: '/_choir/nats', jwt: '', seed: '', inbox: '_INBOX.p', streams: `stream.${cid}.p.>`, expires: '2026-01-02T03:04:05Z' }, lastSequence, readOnly: false,
  provider: { name: 'rehearsal', model: 'rehearsal', rehearsal: true, choices: {} },
})

/** A host with a log, at the wire's other end: requests are answered, events pushed or withheld. */
export class FakeHost {
  log: Event[] = []
  actions: { type: string; id: string; data: unknown }[] = []
  /** Answers actions instead of the default, which appends them. */
  onAction: ((a: { type: string; id: string; data: unknown }) => unknown) | null = null
  reads = 0
  snapshots = 0
  connections = 0
  refuseConnections = false
  /** Runs that the page asked to hear of. */
  followed: string[] = []
  private taker: ((subject: string, bytes: Uint8Array) => void) | null = null
  private streamed: ((subject: string, bytes: Uint8Array) => void) | null = null
  private hangUp: (reason: string) => void = () => {}

  append(type?: string, data?: unknown): Event {
    const e = event(this.log.length + 1, type, data)
    this.log.push(e)
    return e
  }

  push(rest: string, body: unknown): void {
    this.taker?.(`live.${cid}.${rest}`, new TextEncoder().encode(JSON.stringify(body)))
  }

  /** Sends what is this session's alone. */
  stream(rest: string, body: unknown): void {
    this.streamed?.(`stream.${cid}.p.${rest}`, new TextEncoder().encode(JSON.stringify(body)))
  }

  deliver(e: Event): void {
    this.push(`user.${e.type}`, e)
  }

  drop(): void {
    this.taker = null
    this.hangUp('gone')
  }

  connect = (): Promise<Bus> => {
    if (this.refuseConnections) return Promise.reject(new HostError('unavailable', 'refused'))
    this.connections++
    let hang: (reason: string) => void = () => {}
    const closed = new Promise<string>((r) => (hang = r))
    let open = true
    this.hangUp = (reason) => {
      open = false
      hang(reason)
    }
    return Promise.resolve({
      closed,
      close: () => Promise.resolve(this.hangUp('closed')),
      subscribe: (subject, take) => {
        if (subject.startsWith('live.')) this.taker = take
        else this.streamed = take
      },
      request: async (subject, body) => {
        await Promise.resolve()
        if (!open) throw new HostError('unavailable', 'closed')
        return this.answer(subject, body as never)
      },
    } satisfies Bus)
  }

  private answer(subject: string, body: { after: number; limit: number; type: string; id: string; data: unknown }): unknown {
    if (subject === `user.${cid}.action`) {
      if (this.onAction) return this.onAction(body)
      this.actions.push(body)
      const e = event(this.log.length + 1, body.type, body.data, { id: body.id })
      this.log.push(e)
      this.deliver(e)
      return { sequence: e.sequence }
    }
    if (subject.endsWith('.log.read')) {
      this.reads++
      return { events: this.log.slice(body.after, body.after + body.limit), last: this.log.length }
    }
    if (subject.endsWith('.state.snapshot')) {
      this.snapshots++
      const snapshot: Snapshot = { sequence: this.log.length, computer: { cid, name: 'Studio', created: '2026-03-14T09:12:00Z', driver: 'local', isolation: 'full', notes: [] }, theme: null, windows: [], runs: [], checkpoints: [], documents: [] }
      return snapshot
    }
    if (subject.endsWith('.run.follow')) {
      this.followed.push((body as unknown as { run: string }).run)
      return {}
    }
    throw new HostError('not_found', subject)
  }
}
