import type { ActionType, Event, Payloads } from '../contract/types'
import type { Bus, Connect } from './bus'
import { Outbox, type Acknowledged, type Action, type Queued, type Shelf } from './outbox'
import { HostError, type Service, type Services, type Session, type Snapshot } from './protocol'
import { Sequencer } from './sequencer'

export type LinkState = 'connecting' | 'online' | 'catching-up' | 'offline' | 'ended'

/** What the link tells the rest of the page. */
export interface Listener {
  state(state: LinkState, detail: string): void
  session(session: Session): void
  snapshot(snapshot: Snapshot): void
  event(e: Event): void
  tokens(run: string, text: string): void
  /** What waits to be sent. */
  waiting(items: Queued[]): void
  refused(action: Action, e: HostError): void
}

export interface LinkOptions {
  connect: Connect
  session(signal: AbortSignal): Promise<Session>
  shelf(cid: string): Promise<Shelf>
  /** Milliseconds before attempt n (from 0) to connect again. */
  backoff?: (attempt: number) => number
}

const page = 500
const maxFollowed = 16 // as many as the host remembers of one session
const tooFar = 2000

const defaultBackoff = (n: number) => Math.min(8000, 250 * 2 ** n) * (0.8 + 0.4 * Math.random())

/**
 * The page's connection to its computer. It requests a session, connects, applies the
 * events in order and queues the writes; when the connection breaks it starts over without
 * losing what is on the screen.
 */
export class Link {
  /** Replaced when the page's code is replaced; the connection stays. */
  listener: Listener
  private readonly abort = new AbortController()
  private readonly sequencer: Sequencer
  private readonly pending: { type: ActionType; data: unknown; about: object; resolve: (a: Acknowledged) => void; reject: (e: unknown) => void }[] = []
  private outbox: Outbox | null = null
  private bus: Bus | null = null
  private current: Session | null = null
  private painted = false
  private catching: Promise<void> | null = null
  private wake: () => void = () => {}
  private loop: Promise<void> | null = null
  private readonly followed = new Set<string>()

  constructor(
    private readonly options: LinkOptions,
    listener: Listener,
  ) {
    this.listener = listener
    this.sequencer = new Sequencer(0, (e) => this.listener.event(e))
  }

  get session(): Session | null {
    return this.current
  }

  start(): void {
    this.loop ??= this.run()
  }

  async close(): Promise<void> {
    this.abort.abort()
    this.wake()
    await this.bus?.close()
    await this.loop
  }

  /** Tries to connect now instead of waiting for the next attempt. */
  hurry(): void {
    this.wake()
  }

  /** Queues an action; settles when the log took it or refused it. */
  act<T extends ActionType>(type: T, data: Payloads[T], about: { run?: string; subject?: string; id?: string } = {}): Promise<Acknowledged> {
    if (this.outbox) return this.outbox.post(type, data, about)
    return new Promise((resolve, reject) => {
      this.pending.push({ type, data, about, resolve, reject })
      this.listener.waiting(this.pending.map((p) => ({ action: { id: '', type: p.type, data: p.data } as Action, tries: 0, stuck: '' })))
    })
  }

  /** Sends an action again that was set aside, or discards one that waits. */
  again(id: string): void {
    this.outbox?.again(id)
  }

  discard(id: string): void {
    this.outbox?.discard(id)
  }

  /** Has a run's model output sent to this page as it arrives; the host sends it only to pages that requested it. */
  follow(run: string): void {
    this.followed.delete(run) // moves it to the end: only the newest are kept
    this.followed.add(run)
    for (const old of [...this.followed].slice(0, -maxFollowed)) this.followed.delete(old)
    if (this.bus && this.current) void this.askFor(this.bus, this.current, run)
  }

  private askFor(bus: Bus, session: Session, run: string): Promise<unknown> {
    return bus.request(`svc.${session.cid}.run.follow`, { run }).catch(() => {}) // the output is in the log once it is complete
  }

  /** Asks a service; throws a HostError, at once while offline. */
  async ask<S extends Service>(service: S, request: Services[S][0], timeoutMs?: number): Promise<Services[S][1]> {
    if (!this.bus || !this.current) throw new HostError('unavailable', 'The computer is not connected.', 'Wait for the connection to come back.')
    return (await this.bus.request(`svc.${this.current.cid}.${service}`, request, timeoutMs)) as Services[S][1]
  }

  private async run(): Promise<void> {
    const backoff = this.options.backoff ?? defaultBackoff
    for (let attempt = 0; !this.abort.signal.aborted; attempt++) {
      let reason: string
      try {
        this.listener.state(this.painted ? 'offline' : 'connecting', '')
        const session = await this.options.session(this.abort.signal)
        await this.adopt(session)
        const bus = await this.options.connect(session)
        if (this.abort.signal.aborted) {
          await bus.close()
          return
        }
        this.bus = bus
        reason = await this.live(bus, session, () => (attempt = -1))
      } catch (e) {
        if (this.abort.signal.aborted) return
        if (e instanceof HostError && e.code === 'denied') {
          this.listener.state('ended', `${e.message} ${e.hint}`.trim())
          return
        }
        reason = e instanceof Error ? e.message : String(e)
      } finally {
        this.outbox?.connect(null)
        const bus = this.bus
        this.bus = null
        await bus?.close().catch(() => {}) // it is being replaced
      }
      if (this.abort.signal.aborted) return
      this.listener.state('offline', reason)
      await this.sleep(backoff(attempt + 1))
    }
  }

  /** Serves one connection until it ends; returns why it ended. */
  private async live(bus: Bus, session: Session, settled: () => void): Promise<string> {
    const prefix = `live.${session.cid}.`
    bus.subscribe(`${prefix}>`, (subject, bytes) => this.receive(subject.slice(prefix.length), bytes))
    const streams = session.nats.streams.replace(/>$/, '')
    bus.subscribe(session.nats.streams, (subject, bytes) => this.stream(subject.slice(streams.length), bytes))
    for (const run of this.followed) void this.askFor(bus, session, run)
    const work = this.catchUp(bus, session).then(() => {
      settled()
      this.outbox?.connect((a) => bus.request(`user.${session.cid}.action`, a) as Promise<Acknowledged>)
    })
    // A connection over which the missing events can't be read is treated as lost.
    return Promise.race([bus.closed, work.then(() => bus.closed)])
  }

  private async adopt(session: Session): Promise<void> {
    if (this.current && this.current.cid !== session.cid) {
      location.reload() // the state of another computer must not mix with this one's
      return
    }
    this.current = session
    this.listener.session(session)
    if (!this.outbox) {
      const shelf = await this.options.shelf(session.cid)
      this.outbox = new Outbox(
        shelf,
        (items) => this.listener.waiting(items),
        (a, e) => this.listener.refused(a, e),
      )
      for (const p of this.pending.splice(0)) {
        this.outbox.post(p.type, p.data as Payloads[ActionType], p.about).then(p.resolve, p.reject)
      }
    }
  }

  /** Handles messages on the subjects of this session alone. */
  private stream(rest: string, bytes: Uint8Array): void {
    const { text } = (parsed(bytes) ?? {}) as { text?: unknown }
    if (rest.startsWith('tokens.') && typeof text === 'string') this.listener.tokens(rest.slice('tokens.'.length), text)
  }

  private receive(rest: string, bytes: Uint8Array): void {
    const body = parsed(bytes)
    if (body === undefined) return // a lost event shows as a gap in the sequence
    if (rest === 'tick') {
      const { sequence } = body as { sequence?: number }
      if (typeof sequence === 'number' && !this.sequencer.note(sequence)) this.mend()
    } else if (isEvent(body) && !this.sequencer.take(body)) {
      this.mend()
    }
  }

  /** Fills a gap in the background. A failure ends the connection, and the next one starts with catching up. */
  private mend(): void {
    const { bus, current } = this
    if (!bus || !current || this.catching) return
    this.catchUp(bus, current).catch(() => bus.close())
  }

  private catchUp(bus: Bus, session: Session): Promise<void> {
    this.catching ??= this.fill(bus, session).finally(() => (this.catching = null))
    return this.catching
  }

  private async fill(bus: Bus, session: Session): Promise<void> {
    this.sequencer.note(session.lastSequence)
    if (!this.painted || this.sequencer.distance > tooFar) {
      const snapshot = (await bus.request(`svc.${session.cid}.state.snapshot`, {})) as Snapshot
      this.listener.snapshot(snapshot)
      this.painted = true
      this.sequencer.note(snapshot.sequence)
      this.sequencer.reset(snapshot.sequence)
    }
    for (let first = true; first || this.sequencer.behind; first = false) {
      if (this.sequencer.distance > 50) this.listener.state('catching-up', `${this.sequencer.distance} events behind`)
      const before = this.sequencer.last
      const { events, last } = (await bus.request(`svc.${session.cid}.log.read`, { after: before, limit: page })) as Services['log.read'][1]
      for (const e of events) if (isEvent(e)) this.sequencer.take(e)
      this.sequencer.note(last)
      if (this.sequencer.last === before && this.sequencer.behind) {
        throw new HostError('unavailable', `The log says it has ${last} events but gave none after ${before}.`)
      }
    }
    this.listener.state('online', '')
  }

  private sleep(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms)
      this.wake = () => {
        clearTimeout(timer)
        resolve()
      }
    })
  }
}

/** Decodes a message; undefined when it is not JSON, and so not one of ours. */
function parsed(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder().decode(bytes))
  } catch {
    return undefined
  }
}

function isEvent(v: unknown): v is Event {
  const e = v as Partial<Event> | null
  return typeof e === 'object' && e !== null && Number.isSafeInteger(e.sequence) && typeof e.type === 'string' && typeof e.id === 'string' && typeof e.source === 'string'
}
