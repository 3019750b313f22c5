// An agent program at the wire of the Agent Client Protocol, which behaves as the goal of its task says: "mode: NAME".
import { createConnection } from 'node:net'
import { createInterface } from 'node:readline'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'

const session = 'one'
const waiting = new Map()
let next = 100
let cancelled = () => {}

const send = (m) => process.stdout.write(JSON.stringify({ jsonrpc: '2.0', ...m }) + '\n')
const update = (u) => send({ method: 'session/update', params: { sessionId: session, update: u } })
const say = (text) => update({ sessionUpdate: 'agent_message_chunk', content: { type: 'text', text } })
const ask = (method, params) => new Promise((resolve) => {
  waiting.set(++next, resolve)
  send({ id: next, method, params: { sessionId: session, ...params } })
})
const until = (event) => new Promise((resolve) => { cancelled = () => resolve(event) })
const forever = () => new Promise((resolve) => setTimeout(resolve, 3_600_000))

const model = async (text) => {
  const r = await fetch(process.env.OPENAI_BASE_URL + '/chat/completions', {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: 'Bearer ' + process.env.OPENAI_API_KEY },
    body: JSON.stringify({ model: 'any', messages: [{ role: 'user', content: text }] }),
  })
  return r.ok ? (await r.json()).choices[0].message.content : `status ${r.status}`
}

// What a connection to the outside comes to.
const reach = (host, port) => new Promise((resolve) => {
  const s = createConnection({ host, port, timeout: 3000 })
  s.on('connect', () => resolve('connected')).on('timeout', () => resolve('timeout')).on('error', (e) => resolve(e.code))
})

const modes = {
  async good(text) {
    update({ sessionUpdate: 'plan', entries: [{ content: 'look', status: 'completed', priority: 'high' }, { content: 'write', status: 'in_progress', priority: 'high' }] })
    say('I look ')
    say('first.')
    update({ sessionUpdate: 'tool_call', toolCallId: 'c1', title: 'write a note', kind: 'edit', status: 'in_progress' })
    const may = await ask('session/request_permission', { toolCall: { toolCallId: 'c1' }, options: [{ optionId: 'no', name: 'No', kind: 'reject_once' }, { optionId: 'all', name: 'Always', kind: 'allow_always' }, { optionId: 'yes', name: 'Yes', kind: 'allow_once' }] })
    const file = await ask('fs/read_text_file', { path: '/etc/passwd' })
    const shell = await ask('terminal/create', { command: 'id' })
    const found = {
      may: may.result?.outcome?.optionId, file: file.error?.code, shell: shell.error?.code, asked: await model('the program asks'),
      told: ['Nobody can be asked', 'Write a note', 'It is short'].filter((s) => text.includes(s)).length,
      names: await reach('example.com', 443), address: await reach('192.0.2.1', 80), mode: process.env.FAKE, cwd: process.cwd(),
    }
    writeFileSync('workspace/note.json', JSON.stringify(found))
    update({ sessionUpdate: 'tool_call_update', toolCallId: 'c1', status: 'completed' })
    say('The note is written.')
    return 'end_turn'
  },
  async repairs(text) {
    const again = text.includes('## What failed')
    if (again && !(text.includes('I wrote it.') && text.includes('syntax error'))) return 'refusal'
    if (again !== existsSync('workspace/a.sh')) return 'refusal'
    writeFileSync('workspace/a.sh', again ? 'echo two\n' : 'if then\n')
    say('I wrote it.')
    return 'end_turn'
  },
  async steered(text) {
    say('I wait for words.')
    update({ sessionUpdate: 'tool_call', toolCallId: 'w', title: 'wait', status: 'in_progress' })
    const why = await until('cancelled')
    modes.steered = async (more) => {
      writeFileSync('workspace/words.txt', more)
      return 'end_turn'
    }
    return why
  },
  async garbage() {
    process.stdout.write('Loading the model\u001b[31m, please wait\n')
    return forever()
  },
  async huge() {
    const piece = 'x'.repeat(1 << 20)
    for (let i = 0; i < 12; i++) process.stdout.write(piece)
    return forever()
  },
  async calls() {
    for (let i = 0; ; i++) {
      update({ sessionUpdate: 'tool_call', toolCallId: 'c' + i, title: 'again', status: 'completed' })
      await new Promise(setImmediate)
    }
  },
  never: forever,
  async crash() {
    writeFileSync('workspace/half.txt', 'half')
    process.stderr.write('out of ideas\n')
    process.exit(3)
  },
  async answers() {
    send({ id: 9999, result: {} })
    return forever()
  },
  async refuses() {
    say('I had rather not.')
    return 'refusal'
  },
}

for await (const line of createInterface({ input: process.stdin })) {
  const m = JSON.parse(line)
  if (m.id && !m.method) {
    waiting.get(m.id)?.(m)
    continue
  }
  switch (m.method) {
    case 'initialize':
      send({ id: m.id, result: { protocolVersion: 1, agentCapabilities: {} } })
      break
    case 'session/new':
      send({ id: m.id, result: { sessionId: session } })
      break
    case 'session/cancel':
      cancelled()
      break
    case 'session/prompt': {
      const text = m.params.prompt[0].text
      const mode = /mode: (\w+)/.exec(text)?.[1] ?? 'steered'
      modes[mode](text).then((stopReason) => send({ id: m.id, result: { stopReason } }))
    }
  }
}
