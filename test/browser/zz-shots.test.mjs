import { test } from 'node:test'
import { browse, Choir, claim, desktop, gallery, say, sizes, until, visitor } from './harness.mjs'
test('shots', async (t) => {
  const choir = await Choir.start(t)
  const { context, faults } = await visitor(await browse(t), choir)
  const page = await claim(context, choir)
  const frame = await desktop(page)
  const g = gallery()
  const at = async (name, fn) => {
    for (const [width, height] of sizes) {
      await page.setViewportSize({ width, height })
      await until('size', async () => (await frame.evaluate(() => innerWidth)) === width)
      if (fn) await fn(width)
      await g.one(page, frame, `bar-${width}-${name}`)
      await page.keyboard.press('Escape')
    }
    await page.setViewportSize({ width: 1440, height: 900 })
  }
  const overview = async (name) => {
    await at(name, async () => { await page.keyboard.press('F9'); await frame.getByTestId('overview').waitFor() })
  }
  await frame.getByTestId('window').waitFor()
  await at('night-1')
  await say(frame, 'Make the desktop background #0b1526')
  await frame.locator('[data-testid=run][data-status=done]').waitFor()
  for (const a of ['files', 'events', 'timetravel']) await say(frame, `/open ${a}`)
  await say(frame, '!git log --oneline -5')
  await frame.locator('[data-testid=window][data-app=command]').waitFor()
  await at('night-6')
  await overview('night-6-overview')
  for (let i = 0; i < 12; i++) { await say(frame, `!echo the number ${i}`); await frame.getByRole('region', { name: `echo the number ${i}`, exact: true }).waitFor() }
  for (let i = 0; i < 10; i++) { await say(frame, '!seq 1 200'); await frame.getByRole('region', { name: i === 0 ? 'seq 1 200' : `seq 1 200 (${i + 1})`, exact: true }).waitFor() }
  for (const a of ['trace', 'kept', 'help']) await say(frame, `/open ${a}`)
  await frame.getByRole('button', { name: 'Minimise Help' }).click()
  await at('night-30')
  await overview('night-30-overview')
  await at('night-30-list', async (w) => { if (w > 640) await frame.getByTestId('window-list').last().click() })
  await page.setViewportSize({ width: 390, height: 844 })
  await frame.getByTestId('open-apps').click()
  await frame.getByTestId('apps').waitFor()
  await g.one(page, frame, 'bar-390-night-apps')
  await page.keyboard.press('Escape')
  await page.setViewportSize({ width: 1440, height: 900 })
  await say(frame, '/theme day')
  await frame.locator('html[data-scheme=light]').waitFor()
  await at('day-30')
  await overview('day-30-overview')
  await page.setViewportSize({ width: 390, height: 844 })
  await frame.getByTestId('open-apps').click()
  await frame.getByTestId('apps').waitFor()
  await g.one(page, frame, 'bar-390-day-apps')
  await page.keyboard.press('Escape')
  await page.setViewportSize({ width: 1440, height: 900 })
  for (let i = 0; i < 30; i++) { await say(frame, `!echo more ${i}`); await frame.getByRole('region', { name: `echo more ${i}`, exact: true }).waitFor() }
  await frame.evaluate(() => { window.long = []; new PerformanceObserver((l) => window.long.push(...l.getEntries().map((e) => Math.round(e.duration)))).observe({ type: 'longtask' }) })
  for (let i = 0; i < 4; i++) {
    const took = await frame.evaluate(() => new Promise((done) => {
      const t0 = performance.now()
      window.dispatchEvent(new KeyboardEvent('keydown', { key: 'F9', bubbles: true }))
      const look = () => (document.querySelector('[data-tile]') ? requestAnimationFrame(() => done(Math.round(performance.now() - t0))) : requestAnimationFrame(look))
      look()
    }))
    console.log('windows', await frame.getByTestId('window').count(), 'tiles', await frame.locator('[data-tile]').count(), 'ms', took, 'long', await frame.evaluate(() => window.long.splice(0)))
    await page.keyboard.press('Escape')
    await frame.getByTestId('overview').waitFor({ state: 'detached' })
  }
  await g.one(page, frame, 'bar-1440-day-60')
  console.log(faults)
  g.clean(t)
})
