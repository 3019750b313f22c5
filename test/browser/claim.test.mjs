import assert from 'node:assert/strict'
import { test } from 'node:test'
import { browse, Choir, claim, desktop, fetchRaw, visitor } from './harness.mjs'

test('claim', async (t) => {
  const choir = await Choir.start(t)
  const browser = await browse(t)
  const { context, faults } = await visitor(browser, choir)

  await t.test('looking at the link uses up nothing', async () => {
    for (const headers of [{}, { 'sec-purpose': 'prefetch', 'sec-fetch-site': 'none' }]) assert.equal((await fetchRaw(choir.claim_url, { headers })).status, 200)
    // Even a browser that runs the page, as some previews do, does not press the button.
    const preview = await browser.newContext()
    const page = await preview.newPage()
    await page.goto(choir.claim_url)
    await page.getByRole('button', { name: 'Open my computer' }).waitFor()
    assert.equal(new URL(page.url()).hash, '', 'the token leaves the address bar')
    await preview.close()
  })

  const started = Date.now()
  const page = await claim(context, choir, 'Atelier')
  await t.test('the kept build paints first', async () => {
    await page.locator('iframe[data-role=shown]').waitFor()
    const frame = await (await page.locator('iframe[data-role=shown]').elementHandle()).contentFrame()
    await frame.getByTestId('desktop').waitFor()
    await page.locator('iframe[data-role=shown][data-mode]').waitFor()
    t.diagnostic(`painted ${Date.now() - started} ms after the button, as ${await page.locator('iframe[data-role=shown]').getAttribute('data-mode')}`)
    assert.equal(await page.locator('iframe[data-role=shown]').getAttribute('data-mode'), 'build')
    assert.equal(await page.locator('#name').textContent(), 'Atelier')
  })
  await t.test('the live page takes its place', async () => {
    const frame = await desktop(page, 'live')
    t.diagnostic(`live ${Date.now() - started} ms after the button`)
    assert.equal(await page.locator('iframe').count(), 1)
    assert.ok(await frame.evaluate(() => [...document.scripts].some((s) => s.src.includes('/@vite/client'))))
    await frame.getByRole('heading', { name: 'This is Atelier.' }).waitFor()
    assert.equal(await frame.locator('[data-testid=window][data-app=welcome]').count(), 1)
    await page.locator('#state[data-state=awake]').waitFor()
  })
  await t.test('the link works once', async () => {
    const other = await visitor(browser, choir)
    const again = await other.context.newPage()
    await again.goto(choir.claim_url)
    await again.getByLabel('Name').fill('Mine')
    await again.getByRole('button', { name: 'Open my computer' }).click()
    const said = await again.getByRole('alert').textContent()
    assert.match(said, /choir open makes another .*choir accounts link/)
    await again.goto(choir.url.replace('127.0.0.1', 'console.choir.localhost'))
    await again.waitForURL(/\/claim$/)
    await again.getByRole('heading', { name: 'You are not signed in.' }).waitFor()
    assert.equal((await other.context.cookies()).length, 0)
    await other.context.close()
  })
  await t.test('a link for who was here before signs in, and asks for no name', async () => {
    const other = await visitor(browser, choir)
    const again = await other.context.newPage()
    await again.goto(choir.json('open').url)
    await again.getByRole('heading', { name: 'Welcome back.' }).waitFor()
    assert.equal(await again.getByLabel('Name').isVisible(), false)
    await again.getByRole('button', { name: 'Sign in' }).click()
    await again.waitForURL((u) => u.pathname === '/')
    await again.locator('#name').getByText('Atelier').waitFor()
    await other.context.close()
  })
  await t.test('nothing complained', () => assert.deepEqual(faults, []))
})
