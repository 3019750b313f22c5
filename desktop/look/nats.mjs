// The server's side of the NATS client protocol, as much as one page needs.

const encoder = new TextEncoder()

export class NatsPeer {
  /** send(bytes) writes to the page; answer(subject, body) returns or throws what a request gets. */
  constructor(send, answer) {
    this.send = send
    this.answer = answer
    this.subs = new Map()
    this.buffer = Buffer.alloc(0)
    this.send(Buffer.from(`INFO ${JSON.stringify({ server_id: 'look', server_name: 'look', version: '2.15.0', proto: 1, headers: true, max_payload: 1048576, nonce: 'look-nonce', auth_required: true })}\r\n`))
  }

  async take(chunk) {
    this.buffer = Buffer.concat([this.buffer, Buffer.from(chunk)])
    for (;;) {
      const end = this.buffer.indexOf('\r\n')
      if (end < 0) return
      const words = this.buffer.subarray(0, end).toString().split(' ')
      const verb = words[0].toUpperCase()
      if (verb === 'PUB' || verb === 'HPUB') {
        const size = Number(words.at(-1))
        if (this.buffer.length < end + 4 + size) return
        const head = verb === 'HPUB' ? Number(words.at(-2)) : 0
        const payload = this.buffer.subarray(end + 2 + head, end + 2 + size).toString()
        this.buffer = this.buffer.subarray(end + 4 + size)
        const reply = words.length > (verb === 'HPUB' ? 4 : 3) ? words[2] : null
        void this.request(words[1], reply, payload)
        continue
      }
      this.buffer = this.buffer.subarray(end + 2)
      if (verb === 'PING') this.send(Buffer.from('PONG\r\n'))
      else if (verb === 'SUB') this.subs.set(words.at(-1), words[1])
      else if (verb === 'UNSUB') this.subs.delete(words[1])
      else if (verb !== 'CONNECT' && verb !== 'PONG') throw new Error(`unexpected ${verb}`)
    }
  }

  async request(subject, reply, payload) {
    let body
    try {
      body = await this.answer(subject, JSON.parse(payload || '{}'))
    } catch (e) {
      body = { error: { code: e.code ?? 'internal', message: e.message, hint: e.hint ?? '' } }
    }
    if (reply) this.publish(reply, body)
  }

  publish(subject, body) {
    const bytes = encoder.encode(JSON.stringify(body))
    for (const [sid, pattern] of this.subs) {
      if (!matches(pattern, subject)) continue
      this.send(Buffer.concat([Buffer.from(`MSG ${subject} ${sid} ${bytes.length}\r\n`), bytes, Buffer.from('\r\n')]))
    }
  }
}

function matches(pattern, subject) {
  const p = pattern.split('.')
  const s = subject.split('.')
  for (let i = 0; i < p.length; i++) {
    if (p[i] === '>') return s.length > i
    if (s[i] === undefined || (p[i] !== '*' && p[i] !== s[i])) return false
  }
  return p.length === s.length
}
