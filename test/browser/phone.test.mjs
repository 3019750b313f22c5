// Shows that a phone's screen has room for what a finger needs, and that nothing else takes it.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { browse, Choir, claim, desktop, say, until, visitor } from './harness.mjs'

test('a phone', async (t) => {
  const choir = await Choir.start(t)
  const browser = await browse(t)
  const { context } = await visitor(browser, choir, { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true })
  const page = await claim(context, choir, 'The computer with an extraordinarily long name')
  const frame = await desktop(page)
  const front = frame.locator('[data-testid=window][data-active=true]')
  const box = (l) => l.evaluate((e) => {
    const r = e.getBoundingClientRect()
    return { left: r.left, top: r.top, right: r.right, bottom: r.bottom, width: r.width, height: r.height }
  })

  await t.test('what a finger presses is 44 pixels high and wide', async () => {
    await front.waitFor()
    await frame.getByTestId('uses').click()
    await frame.getByTestId('choices').waitFor()
    for (const what of [front.getByRole('button', { name: /^Minimise/ }), front.getByRole('button', { name: /^Close/ }), frame.getByRole('button', { name: 'Send' }), frame.getByRole('button', { name: /^Theme/ }), frame.getByTestId('uses'), frame.getByTestId('choices').locator('label').last()]) {
      const { width, height } = await box(what)
      assert.ok(width >= 44 && height >= 44, `${what}: ${width} × ${height}`)
    }
    await page.keyboard.press('Escape')
  })
  await t.test('a window that was opened on it is as wide on a large screen as if it had been opened there', async () => {
    await say(frame, '/open events')
    await frame.locator('[data-testid=window][data-app=events][data-active=true]').waitFor()
    await until('the window is in the log', () => choir.events().some((e) => e.type === 'window.opened' && e.data.app === 'events'))
    const large = await browser.newContext({ viewport: { width: 1440, height: 900 }, storageState: await context.storageState() })
    const there = await large.newPage()
    await there.goto(choir.url)
    const events = (await desktop(there)).locator('[data-testid=window][data-app=events]')
    await events.waitFor()
    assert.equal((await box(events)).width, 760)
    await large.close()
  })
  await t.test('the bell and the account stay on the screen while something runs', async () => {
    await say(frame, '!sleep 60')
    await page.locator('#running').waitFor()
    for (const id of ['#stop', '#rewind', '#bell', '#account']) {
      const { left, right } = await box(page.locator(id))
      assert.ok(left >= 0 && right <= 390, `${id}: from ${left} to ${right}`)
    }
    await front.getByRole('button', { name: 'Stop' }).click()
  })
  await t.test('a toast covers neither the buttons of a window nor what it shows', async () => {
    await say(frame, '/open help')
    await say(frame, '/checkpoint')
    const toast = frame.getByTestId('toast').last()
    const where = async () => [await box(toast), await box(front.locator('header').first()), await box(front.getByRole('button', { name: /^Minimise/ }))]
    await toast.waitFor()
    await until(async () => `it lies on the title and beside the buttons: ${JSON.stringify(await where())}`, async () => {
      const [it, title, minimise] = await where()
      return it.bottom <= title.bottom && it.right <= minimise.left
    })
  })
})
