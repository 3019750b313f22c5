import { newID } from '../contract/id'
import { command, Parser, publication, subscription, type Message } from './nats'
import { decodeAnswer, HostError, type Session } from './protocol'
import { sign } from './sign'

/** One connection to the computer's bus. It ends once; after that it is replaced and never reopened. */
export interface Bus {
  /** Asks and returns the decoded answer; throws a HostError. */
  request(subject: string, body: unknown, timeoutMs?: number): Promise<unknown>
  /** Calls back with the subject and the raw bytes of every message. */
  subscribe(subject: string, take: (subject: string, bytes: Uint8Array) => void): void
  /** Settles when the connection is gone, with the reason. */
  readonly closed: Promise<string>
  close(): Promise<void>
}

export type Connect = (session: Session) => Promise<Bus>

/** The WebSocket URL of a path on the page's own origin. */
export function socketURL(path: string, at: { protocol: string; host: string } = location): string {
  return `${at.protocol === 'https:' ? 'wss:' : 'ws:'}//${at.host}${path}`
}

const opening = 8_000
const pingEvery = 20_000
const pingsLost = 2
const answersSid = 1

interface Waiting {
  subject: string
  resolve(m: Message): void
  reject(e: HostError): void
}

/** Connects over the control plane's WebSocket with the session's short-lived credentials. */
export const connectNats: Connect = async (session) => {
  const wire = new Wire(session)
  await wire.opened
  return wire
}

/** A WebSocket that speaks NATS, from its opening to its end. */
class Wire implements Bus {
  readonly opened: Promise<void>
  readonly closed: Promise<string>
  private readonly socket: WebSocket
  private readonly waiting = new Map<string, Waiting>()
  private readonly takers = new Map<number, (subject: string, bytes: Uint8Array) => void>()
  private readonly inbox: string
  private asked = 0
  private unanswered = 0 // pings without an answer
  private met = false // whether the server's first INFO has arrived
  private pinging = 0
  private over = false
  private begun!: () => void
  private ended!: (reason: string) => void

  constructor(private readonly session: Session) {
    // The inbox is this connection's alone: other pages of the session share the prefix.
    this.inbox = `${session.nats.inbox}.${newID()}`
    this.closed = new Promise((r) => (this.ended = r))
    const late = setTimeout(() => this.end('The computer did not answer in time.'), opening)
    this.opened = new Promise<void>((resolve, reject) => {
      this.begun = resolve
      void this.closed.then((reason) => reject(new HostError('unavailable', reason)))
    }).finally(() => clearTimeout(late))
    const parser = new Parser({ message: (m) => this.take(m), word: (verb, rest) => this.hear(verb, rest) })
    this.socket = new WebSocket(socketURL(session.nats.url))
    this.socket.binaryType = 'arraybuffer'
    this.socket.onclose = (e) => this.end(e.reason || 'The connection was closed.')
    this.socket.onmessage = (e) => {
      if (this.over) return
      try {
        parser.take(new Uint8Array(e.data as ArrayBuffer))
      } catch (cause) {
        this.end(`The computer said something that can't be understood: ${cause instanceof Error ? cause.message : String(cause)}.`)
      }
    }
  }

  async request(subject: string, body: unknown, timeoutMs = 10_000): Promise<unknown> {
    if (this.over) throw new HostError('closed', 'The connection was closed.')
    const reply = `${this.inbox}.${++this.asked}`
    let late = 0
    try {
      const m = await new Promise<Message>((resolve, reject) => {
        late = window.setTimeout(() => reject(new HostError('timeout', 'The computer did not answer in time.')), timeoutMs)
        this.waiting.set(reply, { subject, resolve, reject })
        this.socket.send(publication(subject, reply, JSON.stringify(body)))
      })
      if (m.status === 503) throw new HostError('unavailable', 'The computer is not listening yet.')
      return decodeAnswer(m.body)
    } finally {
      clearTimeout(late)
      this.waiting.delete(reply)
    }
  }

  subscribe(subject: string, take: (subject: string, bytes: Uint8Array) => void): void {
    const sid = answersSid + 1 + this.takers.size
    this.takers.set(sid, take)
    this.send(subscription(subject, sid))
  }

  async close(): Promise<void> {
    this.end('The connection was closed.')
    await this.closed
  }

  private send(bytes: Uint8Array<ArrayBuffer>): void {
    if (!this.over) this.socket.send(bytes)
  }

  private take(m: Message): void {
    if (m.sid === answersSid) this.waiting.get(m.subject)?.resolve(m)
    else this.takers.get(m.sid)?.(m.subject, m.body)
  }

  private hear(verb: string, rest: string): void {
    switch (verb) {
      case 'INFO':
        if (!this.met) void this.introduce(rest).catch((e: unknown) => this.end(e instanceof Error ? e.message : String(e)))
        this.met = true
        break
      case 'PING':
        this.send(command('PONG'))
        break
      case 'PONG':
        this.unanswered = 0
        if (!this.pinging && !this.over) this.pinging = window.setInterval(() => this.ping(), pingEvery)
        this.begun()
        break
      case '-ERR':
        this.refused(rest)
    }
  }

  private async introduce(info: string): Promise<void> {
    const { nonce = '' } = JSON.parse(info) as { nonce?: string }
    const { jwt, seed } = this.session.nats
    const sig = await sign(seed, nonce)
    this.send(command(`CONNECT ${JSON.stringify({ lang: 'choir', version: '1', protocol: 1, name: 'desktop', verbose: false, pedantic: false, headers: true, no_responders: true, jwt, sig })}`))
    this.send(subscription(`${this.inbox}.*`, answersSid))
    this.send(command('PING'))
  }

  private ping(): void {
    if (this.unanswered++ >= pingsLost) return this.end('The computer does not answer.')
    this.send(command('PING'))
  }

  /** A publication that is not permitted leaves the connection open; any other refusal ends it. */
  private refused(words: string): void {
    const subject = /^'Permissions Violation for Publish to "([^"]*)"/i.exec(words)?.[1]
    if (subject === undefined) return this.end(`The computer's bus refused this: ${words}`)
    for (const w of this.waiting.values()) if (w.subject === subject) w.reject(new HostError('closed', `The computer's bus refused this: ${words}`))
  }

  private end(reason: string): void {
    if (this.over) return
    this.over = true
    clearInterval(this.pinging)
    this.socket.close()
    for (const w of this.waiting.values()) w.reject(new HostError('closed', reason))
    this.ended(reason)
  }
}

/** Requests the session. 401 and 403 end it; any other failure may be temporary. */
export async function fetchSession(signal: AbortSignal): Promise<Session> {
  let response: Response
  try {
    response = await fetch('/_choir/session', { signal, cache: 'no-store', headers: { accept: 'application/json' } })
  } catch (e) {
    throw new HostError('unavailable', e instanceof Error ? e.message : String(e))
  }
  if (response.status === 401 || response.status === 403) {
    throw new HostError('denied', 'This session has ended.', 'Reload the console to open a new one.')
  }
  if (!response.ok) throw new HostError('unavailable', `The computer answered ${response.status}.`)
  return decodeAnswer(new Uint8Array(await response.arrayBuffer())) as Session
}
