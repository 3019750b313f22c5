// Shows the page's policy on styles, for the kept build and for what Vite serves: styles that
// belong to the page apply, and styles that somebody slips into it do not.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { background, browse, Choir, claim, desktop, drawn, until, visitor } from './harness.mjs'

// Checks that the policy of a page's own answer has a nonce and nothing that is unsafe, and returns
// the nonce.
async function nonceOf(response) {
  const header = (await response.allHeaders())['content-security-policy']
  const m = /(?:^|; )style-src 'self' 'nonce-([A-Za-z0-9_-]{20,})';/.exec(header)
  assert.ok(m, `styles are the page's own: ${header}`)
  assert.doesNotMatch(header, /'unsafe-/)
  return m[1]
}

// A button without the shell's style sheets has the browser's own border.
async function painted(frame) {
  const icon = frame.getByTestId('icon-events')
  await icon.waitFor()
  assert.equal(await icon.evaluate((e) => getComputedStyle(e).borderStyle), 'none')
  assert.match(await background(frame), /^#/)
  assert.deepEqual(await frame.evaluate(() => window.stopped), [])
}

// What is slipped into a page, each beside something that is allowed.
async function slip(frame) {
  const got = await frame.evaluate(() => {
    const want = 'rgb(1, 2, 3)'
    const rule = `outline: 3px solid ${want}`
    const probe = (tag = 'p') => document.body.appendChild(Object.assign(document.createElement(tag), { textContent: 'probe' }))
    const applies = (e) => getComputedStyle(e).outlineColor === want
    const sheet = (nonce) => {
      const e = probe()
      e.id = `probe-${document.querySelectorAll('p').length}`
      document.head.append(Object.assign(document.createElement('style'), { nonce, textContent: `#${e.id} { ${rule} }` }))
      return applies(e)
    }
    const attribute = probe()
    attribute.setAttribute('style', rule)
    const holder = probe('div')
    holder.innerHTML = `<p style="${rule}">probe</p>`
    const model = probe()
    model.style.outline = `3px solid ${want}`
    const own = [...document.querySelectorAll('script, style, link, meta')].map((e) => e.nonce).find(Boolean)
    return {
      refused: { sheet: sheet(''), guessed: sheet('CHOIR_NONCE'), attribute: applies(attribute), markup: applies(holder.firstChild) },
      taken: { sheet: sheet(own), model: applies(model) },
    }
  })
  assert.deepEqual(got, { refused: { sheet: false, guessed: false, attribute: false, markup: false }, taken: { sheet: true, model: true } })
  const reported = () => frame.evaluate(() => window.stopped.toSorted())
  await until('the browser reports each', async () => (await reported()).length >= 4)
  assert.deepEqual(await reported(), ['style-src-attr', 'style-src-attr', 'style-src-elem', 'style-src-elem'])
}

// A visitor whose pages record, before any script of theirs runs, what a policy stops, together
// with the answers for the desktop's pages.
async function watch(t, choir) {
  const { context, faults } = await visitor(await browse(t), choir)
  await context.addInitScript(() => {
    window.stopped = []
    document.addEventListener('securitypolicyviolation', (e) => window.stopped.push(e.effectiveDirective))
  })
  const pages = []
  context.on('response', (r) => {
    const u = new URL(r.url())
    if (u.hostname.endsWith('.desk.choir.localhost') && u.pathname === '/' && r.status() === 200) pages.push(r)
  })
  return { page: await claim(context, choir), pages, faults }
}

test('styles of the kept build', async (t) => {
  const choir = await Choir.start(t)
  choir.put('choiros/vite.config.ts', "throw new Error('no dev server today')\n")
  const { page, pages, faults } = await watch(t, choir)
  const frame = await desktop(page, 'build')
  await painted(frame)
  await nonceOf(pages[0])
  assert.deepEqual(faults, [])
  await slip(frame)
})

test('styles of the live page', async (t) => {
  const choir = await Choir.start(t)
  const { page, pages, faults } = await watch(t, choir)
  const frame = await desktop(page)
  await t.test('the shell is painted, and nothing is stopped', () => painted(frame))
  await t.test('its sheets are replaced while it runs, and new ones come', async () => {
    const [colour, late] = [drawn(), drawn()]
    const file = 'choiros/src/shell/desktop.css'
    choir.put(file, choir.cli(['files', 'cat', file]).replace('--shell-background: var(--choir-background);', `--shell-background: ${colour};`))
    await until('the sheet is replaced', async () => (await background(frame)) === colour)
    choir.put('choiros/src/shell/late.css', `[data-testid="desktop"] { background: ${late} !important }\n`)
    const shell = 'choiros/src/shell/Desktop.tsx'
    choir.put(shell, `import './late.css'\n${choir.cli(['files', 'cat', shell])}`)
    await until('the new sheet applies', async () => (await background(frame)) === late)
    assert.deepEqual(await frame.evaluate(() => window.stopped), [])
  })
  await t.test('each answer has a nonce of its own', async () => {
    await page.reload()
    const again = await desktop(page)
    await painted(again)
    assert.ok(pages.length > 2, `${pages.length} pages`)
    assert.equal(new Set(await Promise.all(pages.map(nonceOf))).size, pages.length)
    assert.deepEqual(faults, [])
    await slip(again)
  })
})
