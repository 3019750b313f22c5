// Console and desktop are light or dark together: a new computer begins as the system is, then the desktop's theme says it.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { axe, browse, Choir, claim, desktop, gallery, say, until, visitor } from './harness.mjs'

test('one scheme', async (t) => {
  const choir = await Choir.start(t)
  const browser = await browse(t)
  const { context, faults } = await visitor(browser, choir, { colorScheme: 'light' })
  const page = await claim(context, choir)
  let frame = await desktop(page)
  const { one: shot, clean } = gallery()
  const consoles = () => page.evaluate(() => document.documentElement.dataset.scheme)
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor)

  await t.test('a new computer begins as the system is', async (t2) => {
    await frame.locator('html[data-scheme=light]').waitFor()
    await frame.getByRole('heading', { name: 'This is Studio.' }).waitFor()
    await until('the console is light', async () => (await consoles()) === 'light')
    assert.match(choir.cli(['files', 'cat', 'artifacts/system/theme.json']), /"name": "Day"/)
    await shot(page, frame, '1440-day-begins')
    clean(t2)
    // Its beginning is light, too.
    await say(frame, '/restore beginning')
    await frame.getByTestId('restore-plan').getByText('Nothing would change').waitFor()
    await say(frame, '/new')
  })
  await t.test('the console follows the desktop, whatever the system is', async () => {
    const light = await ground()
    await say(frame, '/theme night')
    await frame.locator('html[data-scheme=dark]').waitFor()
    await until('the console is dark', async () => (await consoles()) === 'dark')
    assert.notEqual(await ground(), light)
    assert.deepEqual(await axe(page.mainFrame()), [])
  })
  await t.test('and begins so the next time, before there is a desktop', async () => {
    await page.route('**/ticket?*', (route) => route.abort())
    await page.reload()
    await page.locator('#waiting').waitFor()
    assert.equal(await consoles(), 'dark')
    await page.unroute('**/ticket?*')
    await page.reload()
    frame = await desktop(page)
  })
  await t.test('a page can say light or dark, nothing else, and not all the time', async () => {
    await page.evaluate(() => {
      globalThis.changes = []
      new MutationObserver(() => globalThis.changes.push(document.documentElement.getAttribute('data-scheme'))).observe(document.documentElement, { attributes: true })
    })
    await frame.evaluate(async () => {
      const root = document.documentElement
      root.dataset.scheme = 'red url(https://evil.example)'
      await new Promise(requestAnimationFrame)
      for (let i = 0; i < 60; i++) {
        root.dataset.scheme = i % 2 ? 'dark' : 'light'
        await new Promise(requestAnimationFrame)
      }
      root.dataset.scheme = 'light'
    })
    await until('the console is as the page is in the end', async () => (await consoles()) === 'light')
    const changes = await page.evaluate(() => globalThis.changes)
    assert.ok(changes.length <= 4, `it changed ${changes.length} times`)
    assert.ok(changes.every((c) => c === 'light' || c === 'dark'), String(changes))
  })
  await t.test('nothing complained', () => assert.deepEqual(faults.filter((f) => !/ERR_FAILED|ticket/.test(f)), []))
})
