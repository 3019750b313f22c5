// A client of the Model Context Protocol by a library that is not ours, which uses a computer:
//   node client.mjs http URL TOKEN PAGE_ORIGIN   or   node client.mjs stdio PROGRAM ARGS…
// It prints one line of JSON with what it found; the test compares.

import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'

const [how, ...rest] = process.argv.slice(2)
const found = {}

function transport(headers) {
  if (how === 'stdio') return new StdioClientTransport({ command: rest[0], args: rest.slice(1), env: process.env })
  return new StreamableHTTPClientTransport(new URL(rest[0]), { requestInit: { headers: { Authorization: `Bearer ${rest[1]}`, ...headers } } })
}

const client = new Client({ name: 'not-ours', version: '1' })
await client.connect(transport())
found.server = client.getServerVersion().name
found.tools = (await client.listTools()).tools.map((t) => t.name)

const text = (r) => r.content.map((c) => c.text ?? '').join('')
const call = async (name, args, options) => {
  const r = await client.callTool({ name, arguments: args }, undefined, options)
  return { refused: Boolean(r.isError), text: text(r) }
}

found.written = await call('files_write', { path: 'workspace/by-a-model.txt', content: 'héllo\n' })
found.read = await call('files_read', { path: 'workspace/by-a-model.txt' })
found.outside = await call('files_read', { path: '../../etc/passwd' })
if (found.tools.includes('exec')) {
  found.exec = await call('exec', { argv: ['sh', '-c', 'echo out; echo err >&2; exit 3'] })
  // A call that is cancelled ends its command.
  const stop = new AbortController()
  const began = call('exec', { argv: ['sh', '-c', 'touch workspace/began; sleep 600; touch workspace/over'] }, { signal: stop.signal }).catch((e) => ({ cancelled: String(e) }))
  for (;;) {
    const seen = await call('files_list', { path: 'workspace/began' })
    if (!seen.refused) break
  }
  stop.abort('enough')
  found.cancelled = await began
}
if (found.tools.includes('prompt')) {
  const progress = []
  found.prompt = await call('prompt', { text: 'say hello', wait: 120 }, { onprogress: (p) => progress.push(p), timeout: 180_000 })
  found.progress = progress.length
  found.continued = await call('prompt', { text: 'say hello again', continues: JSON.parse(found.prompt.text).id })
  found.routed = await call('prompt', { text: 'say hello at length', route: 'plan', effort: 'low' })
  found.unknown = await call('prompt', { text: 'say hello again', continues: '00000000-0000-7000-8000-000000000000' })
}
found.resource = (await client.readResource({ uri: 'choir://file/workspace/by-a-model.txt' })).contents[0].text
await client.close()

if (how === 'http') {
  for (const [name, headers] of Object.entries({ page: { Origin: rest[2] }, nobody: { Authorization: 'Bearer nothing' } })) {
    const other = new Client({ name: 'not-ours', version: '1' })
    found[name] = await other.connect(transport(headers)).then(() => 'connected', (e) => String(e))
  }
}
console.log(JSON.stringify(found))
