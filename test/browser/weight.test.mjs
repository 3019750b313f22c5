// Shows what a desktop weighs on the wire, and how soon it is there again.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { browse, Choir, claim, desktop, until, visitor } from './harness.mjs'

// Weighs what comes over the wire for desktops, as the browser counts it.
function scale(context) {
  const pending = []
  context.on('requestfinished', (r) => {
    const u = new URL(r.url())
    if (!/\.desk\./.test(u.host)) return
    pending.push(
      Promise.all([r.sizes(), r.response()]).then(
        ([sizes, res]) => ({ path: u.pathname, bytes: sizes.responseBodySize + sizes.responseHeadersSize, body: sizes.responseBodySize, encoding: res?.headers()['content-encoding'] ?? '', ms: r.timing().responseEnd }),
        () => null, // its page is gone
      ),
    )
  })
  return {
    async all() {
      return (await Promise.all(pending)).filter(Boolean)
    },
    clear: () => void (pending.length = 0),
  }
}

const sum = (list) => list.reduce((n, r) => n + r.bytes, 0)
const largest = (list) => JSON.stringify(list.toSorted((a, b) => b.bytes - a.bytes).slice(0, 6).map((r) => [r.path, r.bytes, r.encoding]))

test('the kept build weighs little', async (t) => {
  const choir = await Choir.start(t)
  choir.put('choiros/vite.config.ts', "throw new Error('no dev server today')\n")
  const { context } = await visitor(await browse(t), choir)
  const s = scale(context)
  const frame = await desktop(await claim(context, choir), 'build')
  await frame.getByTestId('icon-events').waitFor()
  const faces = () => frame.evaluate(() => [...document.fonts].filter((f) => f.status === 'loaded').map((f) => f.family.replaceAll('"', '')))
  await until(async () => `both faces are there: ${await faces()}`, async () => new Set(await faces()).size === 2) // they arrive a moment later
  const all = await s.all()
  const code = all.filter((r) => !r.path.endsWith('.woff2') && !r.path.startsWith('/_choir/'))
  t.diagnostic(`the build: ${all.length} requests, ${sum(all)} bytes, ${sum(code)} of them page, code and styles; the largest: ${largest(all)}`)
  assert.ok(code.some((r) => r.path.startsWith('/assets/index-')), largest(all))
  assert.deepEqual((await faces()).toSorted(), ['Inter Variable', 'JetBrains Mono Variable'], 'one part of each')
  // This is everything that a first visit loads, including both faces and what the host adds.
  assert.ok(sum(code) > 10_000 && sum(all) <= 150_000, `${sum(all)} bytes: ${largest(all)}`)
})

test('the kept build without Web Crypto; an app is loaded when it is pointed at, and again when that failed', async (t) => {
  const choir = await Choir.start(t)
  choir.put('choiros/vite.config.ts', "throw new Error('no dev server today')\n")
  const { context } = await visitor(await browse(t), choir)
  const asked = []
  context.on('request', (r) => asked.push(new URL(r.url()).pathname))
  await context.addInitScript(() => Object.defineProperty(crypto, 'subtle', { value: undefined })) // as on an origin that is not secure
  const s = scale(context)
  const frame = await desktop(await claim(context, choir), 'build')
  await until('both faces are there', async () => (await s.all()).filter((r) => r.path.endsWith('.woff2')).length === 2)
  const all = await s.all()
  t.diagnostic(`without Web Crypto: ${sum(all)} bytes; the largest: ${largest(all)}`)
  assert.ok(all.some((r) => r.path.startsWith('/assets/ed25519-')) && sum(all) <= 150_000 + 6_500, `${sum(all)} bytes: ${largest(all)}`)
  const icon = (name) => frame.getByTestId(`icon-${name}`)
  await icon('events').hover()
  await until('its code is asked for', () => asked.some((p) => /^\/assets\/Events-.*\.js$/.test(p)))
  assert.equal(await frame.getByTestId('window').filter({ hasText: 'Events' }).count(), 0)

  await context.route('**/assets/Help-*', (r) => r.abort())
  await icon('help').click()
  const card = frame.locator('[data-testid=window][data-active=true]').getByRole('alert')
  await card.getByText('stopped working').waitFor()
  await context.unroute('**/assets/Help-*')
  await card.getByRole('button', { name: 'Try again' }).click()
  const heading = frame.locator('[data-testid=window][data-active=true]').getByRole('heading', { name: 'In the prompt bar' })
  await heading.waitFor()
  assert.equal(await heading.evaluate((e) => getComputedStyle(e).paddingBottom), '6px', 'it has its styles')
})

test('the live page is compressed, and soon there again', async (t) => {
  const choir = await Choir.start(t)
  const { context } = await visitor(await browse(t), choir)
  const s = scale(context)
  const page = await claim(context, choir)
  await desktop(page)
  const cold = (await s.all()).filter((r) => !r.path.startsWith('/assets/'))
  t.diagnostic(`cold: ${cold.length} requests, ${sum(cold)} bytes; the largest: ${largest(cold)}`)
  assert.ok(sum(cold) > 100_000 && sum(cold) <= 2_000_000, `${sum(cold)} bytes: ${largest(cold)}`)
  s.clear()
  await page.reload()
  const frame = await desktop(page)
  const took = await frame.evaluate(() => Math.round(Math.max(...performance.getEntriesByType('resource').filter((e) => /\.(tsx?|css|js)(\?|$)/.test(e.name)).map((e) => e.responseEnd))))
  const warm = (await s.all()).filter((r) => !r.path.startsWith('/assets/'))
  t.diagnostic(`warm: ${warm.length} requests, ${sum(warm)} bytes, its modules are there after ${took} ms; the largest: ${largest(warm)}`)
  assert.ok(sum(warm) < sum(cold) / 3, `${sum(warm)} bytes come again: ${largest(warm)}`)
})
