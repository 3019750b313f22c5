import fc from 'fast-check'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { connectNats } from '../src/link/bus'
import { Parser, publication, subscription, type Message } from '../src/link/nats'
import { HostError } from '../src/link/protocol'
import * as ed25519 from '../src/link/ed25519'
import { keyOf, sign } from '../src/link/sign'
import { session } from './fake'

// The server's own library made this from the bytes 3, 10, 17, …
const seed = 'SUAAGCQRDAPSMLJUHNBESUCXLZSWY432QGEI7FU5USV3FOOAY7HNLXDKKA'
const ofAnAccount = 'SAAAGCQRDAPSMLJUHNBESUCXLZSWY432QGEI7FU5USV3FOOAY7HNLXEZTQ'
const signed = 'iyTnMzS55JB7e5QvO5t1Eguq/ytMGzssDKku4dV1KfuNzsWWajFlwvDcEMjgOmhM/fDSDU0XQAErNaW994BUBQ=='

vi.mock('../src/link/ed25519', { spy: true })

const bytes = (text: string) => new TextEncoder().encode(text)
const text = (b: Uint8Array) => new TextDecoder().decode(b)

afterEach(() => vi.unstubAllGlobals())

describe('the answer to the nonce', () => {
  it('is what the server’s own library signs, by the browser and without it', async () => {
    expect(await sign(seed, 'a nonce')).toBe(signed)
    vi.stubGlobal('crypto', {}) // as on an origin that is not secure
    expect(await sign(seed, 'a nonce')).toBe(signed)
    const importKey = vi.fn(() => Promise.reject(new DOMException('Ed25519?', 'NotSupportedError')))
    vi.stubGlobal('crypto', { subtle: { importKey } })
    expect(await sign(seed, 'a nonce')).toBe(signed)
    expect(importKey).toHaveBeenCalled()
  })

  it('is made by the browser where it can', async () => {
    vi.mocked(ed25519.sign).mockClear()
    await sign(seed, 'a nonce')
    expect(ed25519.sign).not.toHaveBeenCalled()
    vi.stubGlobal('crypto', {})
    await sign(seed, 'a nonce')
    expect(ed25519.sign).toHaveBeenCalledOnce()
  })

  it('is of a user’s whole seed only', () => {
    expect(keyOf(seed)).toEqual(Uint8Array.from({ length: 32 }, (_, i) => (i * 7 + 3) & 255))
    expect(() => keyOf(ofAnAccount)).toThrow('not that of a user')
    for (const damaged of ['', seed.slice(1), seed.replace('7', '6'), seed.toLowerCase(), `${seed}AA`]) expect(() => keyOf(damaged)).toThrow()
  })
})

function parsed(chunks: Iterable<Uint8Array>) {
  const met: (Message | [string, string])[] = []
  const p = new Parser({ message: (m) => met.push(m), word: (...w) => met.push(w) })
  for (const c of chunks) p.take(c)
  return met
}

describe('the protocol', () => {
  const stream = bytes('INFO {"nonce":"n"}\r\nMSG live.a 2 5\r\na\r\nbc\r\nHMSG in.1 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\nPING\r\nHMSG in.2 1 re.ply 14 16\r\nNATS/1.0\r\nA:\r\nok\r\nMSG e 3 0\r\n\r\n-ERR \'Slow\'\r\n')
  const whole: unknown[] = [
    ['INFO', '{"nonce":"n"}'], { subject: 'live.a', sid: 2, body: bytes('a\r\nbc') }, { subject: 'in.1', sid: 1, body: bytes(''), status: 503 }, ['PING', ''],
    { subject: 'in.2', sid: 1, body: bytes('ok') }, { subject: 'e', sid: 3, body: bytes('') }, ['-ERR', "'Slow'"],
  ]

  it('is read the same in whatever pieces it comes', () => {
    fc.assert(fc.property(fc.array(fc.nat(stream.length)), (cuts) => {
      const at = [0, ...cuts.sort((a, b) => a - b), stream.length]
      expect(parsed(at.slice(1).map((end, i) => stream.slice(at[i], end)))).toEqual(whole)
    }))
  })

  it.each([
    ['a line without end', 'INFO '.padEnd(17 << 10, 'x')], ['a line that ends late', `INFO ${'x'.repeat(17 << 10)}\r\n`], ['a message without end', 'MSG a 2 99999999\r\n'], ['no length', 'MSG a 2 x\r\n'], ['a negative length', 'MSG a 2 -1\r\n'],
    ['headers longer than all', 'HMSG a 2 9 4\r\n'], ['too few fields', 'MSG a 5\r\n'], ['another length than it says', 'MSG a 2 1\r\naPPPING\r\n'], ['an unknown word', 'HELLO\r\n'],
  ])('refuses %s', (_, said) => expect(() => parsed([bytes(said)])).toThrow())

  it('takes no other command into a subject', () => {
    for (const subject of ['a\r\nPUB b 0', 'a b', '']) {
      expect(() => publication(subject, 'r', '')).toThrow()
      expect(() => subscription(subject, 1)).toThrow()
    }
    expect(text(publication('a', 'r', 'ü'))).toBe('PUB a r 2\r\nü\r\n')
  })
})

/** The browser's WebSocket with the server's side in the test's hands. */
class Socket {
  static last: Socket
  binaryType = ''
  sent: string[] = []
  closed = false
  onmessage: (e: { data: ArrayBuffer }) => void = () => {}
  onclose: (e: { reason: string }) => void = () => {}
  constructor(readonly url: string) {
    Socket.last = this
  }
  send(b: Uint8Array) {
    this.sent.push(text(b))
  }
  close() {
    this.closed = true
  }
  say(line: string) {
    this.onmessage({ data: bytes(line).buffer })
  }
}

describe('the connection', () => {
  beforeEach(() => vi.stubGlobal('WebSocket', Socket))
  afterEach(() => vi.useRealTimers())

  const about = { ...session(), nats: { ...session().nats, seed, jwt: 'j.w.t' } }

  async function open() {
    const bus = connectNats(about)
    const s = Socket.last
    s.say('INFO {"nonce":"a nonce","headers":true}\r\n')
    await vi.waitFor(() => expect(s.sent.at(-1)).toBe('PING\r\n'))
    s.say('PONG\r\n')
    return { bus: await bus, s }
  }

  /** The reply subject of the last request that was sent. */
  const replyTo = (s: Socket) => s.sent.at(-1)!.split(' ')[2]!
  const answer = (s: Socket, reply: string, body: string) => s.say(`MSG ${reply} 1 ${bytes(body).length}\r\n${body}\r\n`)

  it('introduces itself, and listens for answers under an inbox of its own', async () => {
    const { s } = await open()
    const [connect, sub] = s.sent
    expect(JSON.parse(connect!.slice('CONNECT '.length))).toMatchObject({ jwt: 'j.w.t', sig: signed, verbose: false, headers: true, no_responders: true })
    expect(sub).toMatch(/^SUB _INBOX\.p\.[0-9a-f-]{36}\.\* 1\r\n$/)
    const { s: other } = await open()
    expect(other.sent[1]).not.toBe(sub)
  })

  it('gives each request its own answer', async () => {
    const { bus, s } = await open()
    const first = bus.request('svc.a', { n: 1 })
    const one = replyTo(s)
    const second = bus.request('svc.b', {})
    answer(s, replyTo(s), '{"second":true}')
    answer(s, one, '{"first":true}')
    expect(await first).toEqual({ first: true })
    expect(await second).toEqual({ second: true })
    expect(s.sent.at(-2)).toBe(`PUB svc.a ${one} 7\r\n{"n":1}\r\n`)
  })

  it('tells what came of a request that gets no answer', async () => {
    const { bus, s } = await open()
    const nobody = bus.request('svc.a', {})
    s.say(`HMSG ${replyTo(s)} 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n`)
    await expect(nobody).rejects.toMatchObject({ code: 'unavailable' })
    await expect(bus.request('svc.a', {}, 1)).rejects.toMatchObject({ code: 'timeout' })
    const refused = bus.request('svc.no', {})
    const other = bus.request('svc.a', {})
    s.say('-ERR \'Permissions Violation for Publish to "svc.no"\'\r\n')
    await expect(refused).rejects.toMatchObject({ code: 'closed' })
    const cut = expect(other).rejects.toMatchObject({ code: 'closed' })
    s.onclose({ reason: 'going away' })
    await cut
    expect(await bus.closed).toBe('going away')
    await expect(bus.request('svc.a', {})).rejects.toThrow(HostError)
  })

  it('hands on what it is subscribed to', async () => {
    const { bus, s } = await open()
    const got: string[] = []
    bus.subscribe('live.x.>', (subject, b) => got.push(`${subject} ${text(b)}`))
    bus.subscribe('more.>', (subject) => got.push(subject))
    expect(s.sent.slice(-2)).toEqual(['SUB live.x.> 2\r\n', 'SUB more.> 3\r\n'])
    s.say('MSG live.x.tick 2 2\r\n{}\r\nMSG more.a 3 0\r\n\r\nMSG old 9 0\r\n\r\n')
    expect(got).toEqual(['live.x.tick {}', 'more.a'])
  })

  it('ends at what it can’t read, at what is refused, and when it is closed', async () => {
    for (const [last, reason] of [['MSG\r\n', 'understood'], ["-ERR 'User Authentication Expired'\r\n", 'Expired'], ['-ERR \'Permissions Violation for Subscription to "live.>"\'\r\n', 'Subscription']] as const) {
      const { bus, s } = await open()
      s.say(last)
      expect(await bus.closed).toContain(reason)
      expect(s.closed).toBe(true)
    }
    const { bus, s } = await open()
    await bus.close()
    expect(s.closed).toBe(true)
  })

  it('is no connection before the server took its credentials', async () => {
    const refused = connectNats(about)
    Socket.last.say('INFO {"nonce":"x"}\r\n')
    Socket.last.say("-ERR 'Authorization Violation'\r\n")
    await expect(refused).rejects.toMatchObject({ code: 'unavailable', message: expect.stringContaining('Authorization') as string })
    vi.useFakeTimers()
    const silent = expect(connectNats(about)).rejects.toMatchObject({ code: 'unavailable' })
    await vi.advanceTimersByTimeAsync(8_000)
    await silent
    expect(Socket.last.closed).toBe(true)
  })

  it('answers pings, and ends when its own stay unanswered', async () => {
    const { bus, s } = await openWithTimers()
    s.say('PING\r\n')
    expect(s.sent.at(-1)).toBe('PONG\r\n')
    await vi.advanceTimersByTimeAsync(20_000)
    s.say('PONG\r\n')
    await vi.advanceTimersByTimeAsync(40_000)
    expect(s.closed).toBe(false)
    await vi.advanceTimersByTimeAsync(20_000)
    expect(s.closed).toBe(true)
    expect(await bus.closed).toContain('does not answer')
  })

  async function openWithTimers() {
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
    return open()
  }
})
