// The NATS client protocol, as much of it as one page needs on one connection:
// https://docs.nats.io/reference/reference-protocols/nats-protocol

/** One message from the server. */
export interface Message {
  sid: number
  subject: string
  body: Uint8Array
  /** The code in its headers: 503 is what a request gets that nobody listens to. */
  status?: number
}

/** What the parser calls. */
export interface Reader {
  message(m: Message): void
  /** INFO, PING, PONG, +OK or -ERR, with what follows the word. */
  word(verb: string, rest: string): void
}

const maxLine = 16 << 10
const maxBody = 2 << 20 // twice what the server takes
const decoder = new TextDecoder()

/** Parses what the server sends, in pieces of any size; throws at anything that is not the protocol. */
export class Parser {
  private held = new Uint8Array(0)
  /** What the line before announced, or null between messages. */
  private coming: { sid: number; subject: string; head: number; size: number } | null = null

  constructor(private readonly reader: Reader) {}

  take(chunk: Uint8Array): void {
    let at = 0
    const bytes = this.held.length ? joined(this.held, chunk) : chunk
    for (;;) {
      const next = this.coming ? this.body(bytes, at) : this.line(bytes, at)
      if (next < 0) break
      at = next
    }
    this.held = bytes.slice(at)
  }

  /** Reads one line; returns where the next one begins, or -1 when it is not complete yet. */
  private line(bytes: Uint8Array, at: number): number {
    const end = bytes.indexOf(10, at)
    if ((end < 0 ? bytes.length : end) - at > maxLine) throw new Error('a line is too long')
    if (end < 0) return -1
    const line = decoder.decode(bytes.subarray(at, bytes[end - 1] === 13 ? end - 1 : end))
    const verb = /^\S*/.exec(line)![0].toUpperCase()
    if (verb === 'MSG' || verb === 'HMSG') this.coming = announced(line, verb === 'HMSG')
    else if (['INFO', 'PING', 'PONG', '+OK', '-ERR'].includes(verb)) this.reader.word(verb, line.slice(verb.length).trim())
    else throw new Error(`an unknown word: ${line.slice(0, 40)}`)
    return end + 1
  }

  private body(bytes: Uint8Array, at: number): number {
    const { sid, subject, head, size } = this.coming!
    const end = at + size
    if (bytes.length < end + 2) return -1
    if (bytes[end] !== 13 || bytes[end + 1] !== 10) throw new Error('a message has another length than it says')
    this.coming = null
    const status = head ? /^NATS\/1\.0 (\d{3})/.exec(decoder.decode(bytes.subarray(at, at + head)))?.[1] : undefined
    this.reader.message({ sid, subject, body: bytes.slice(at + head, end), ...(status ? { status: Number(status) } : {}) })
    return end + 2
  }
}

/** Reads `MSG subject sid [reply] size` or `HMSG subject sid [reply] head size`. */
function announced(line: string, headers: boolean) {
  const words = line.trim().split(/\s+/)
  const numbers = headers ? words.slice(-2).map(Number) : [0, Number(words.at(-1))]
  const [head, size] = numbers as [number, number]
  const sid = Number(words[2])
  const fields = words.length - (headers ? 2 : 1)
  if (fields < 3 || fields > 4 || ![head, size, sid].every(Number.isSafeInteger) || head < 0 || size < head || size > maxBody) throw new Error(`no message: ${line.slice(0, 80)}`)
  return { sid, subject: words[1]!, head, size }
}

function joined(a: Uint8Array, b: Uint8Array): Uint8Array<ArrayBuffer> {
  const both = new Uint8Array(a.length + b.length)
  both.set(a)
  both.set(b, a.length)
  return both
}

const encoder = new TextEncoder()

/** A PUB command, encoded. */
export function publication(subject: string, reply: string, body: string): Uint8Array<ArrayBuffer> {
  const payload = encoder.encode(body)
  return joined(joined(encoder.encode(`PUB ${word(subject)} ${word(reply)} ${payload.length}\r\n`), payload), encoder.encode('\r\n'))
}

/** A SUB command, encoded. */
export function subscription(subject: string, sid: number): Uint8Array<ArrayBuffer> {
  return encoder.encode(`SUB ${word(subject)} ${sid}\r\n`)
}

export function command(text: string): Uint8Array<ArrayBuffer> {
  return encoder.encode(`${text}\r\n`)
}

/** Refuses a subject with a space or a line end in it, which would be another command. */
function word(subject: string): string {
  if (!/^[!-~]+$/.test(subject)) throw new Error(`no subject: ${JSON.stringify(subject)}`)
  return subject
}
