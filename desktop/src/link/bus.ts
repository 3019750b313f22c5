import { jwtAuthenticator, wsconnect, errors, type NatsConnection } from '@nats-io/nats-core'
import { decodeAnswer, HostError, type Session } from './protocol'

/** One connection to the computer's bus. It ends once and is then replaced, never revived. */
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

/** The page's own origin, with the WebSocket scheme that belongs to it. */
export function socketURL(path: string, at: { protocol: string; host: string } = location): string {
  return `${at.protocol === 'https:' ? 'wss:' : 'ws:'}//${at.host}${path}`
}

/** Connects over the control plane's WebSocket with the session's short-lived credentials. */
export const connectNats: Connect = async (session) => {
  const nc: NatsConnection = await wsconnect({
    servers: socketURL(session.nats.url),
    authenticator: jwtAuthenticator(session.nats.jwt, new TextEncoder().encode(session.nats.seed)),
    inboxPrefix: session.nats.inbox,
    name: 'desktop',
    reconnect: false,
    pingInterval: 20_000,
    maxPingOut: 2,
    timeout: 8_000,
    ignoreClusterUpdates: true,
  })
  return {
    async request(subject, body, timeoutMs = 10_000) {
      let reply
      try {
        reply = await nc.request(subject, JSON.stringify(body), { timeout: timeoutMs })
      } catch (e) {
        if (e instanceof errors.TimeoutError) throw new HostError('timeout', 'The computer did not answer in time.')
        if (e instanceof errors.NoRespondersError || (e instanceof errors.RequestError && e.isNoResponders())) {
          throw new HostError('unavailable', 'The computer is not listening yet.')
        }
        throw new HostError('closed', e instanceof Error ? e.message : String(e))
      }
      return decodeAnswer(reply.data)
    },
    subscribe(subject, take) {
      nc.subscribe(subject, {
        callback: (err, msg) => {
          if (!err) take(msg.subject, msg.data)
        },
      })
    },
    closed: nc.closed().then((e) => (e ? e.message : 'The connection was closed.')),
    close: () => nc.close(),
  }
}

/** Asks for the session; 401 and 403 end it, everything else may pass. */
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
