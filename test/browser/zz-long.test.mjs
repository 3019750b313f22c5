import { test } from 'node:test'
import { browse, Choir, claim, desktop, say, visitor, until } from './harness.mjs'
for (const mode of ['build']) test('long ' + mode, async (t) => {
  const choir = await Choir.start(t)
  choir.put('choiros/vite.config.ts', "throw new Error('no dev server today')\n")
  const { context } = await visitor(await browse(t), choir)
  const page = await claim(context, choir)
  const frame = await desktop(page, mode)
  for (const a of ['files', 'events', 'timetravel', 'trace', 'help']) await say(frame, `/open ${a}`)
  for (let i = 0; i < 54; i++) { await say(frame, `!seq 1 ${100 + i}`); await frame.getByRole('region', { name: `seq 1 ${100 + i}`, exact: true }).waitFor() }
  await frame.evaluate(() => { window.long = []; new PerformanceObserver((l) => window.long.push(...l.getEntries().map((e) => Math.round(e.duration)))).observe({ type: 'longtask' }) })
  for (let i = 0; i < 5; i++) {
    const took = await frame.evaluate(() => new Promise((done) => {
      const t0 = performance.now()
      window.dispatchEvent(new KeyboardEvent('keydown', { key: 'F9', bubbles: true }))
      const look = () => (document.querySelector('[data-tile]') ? requestAnimationFrame(() => done(Math.round(performance.now() - t0))) : requestAnimationFrame(look))
      look()
    }))
    console.log(mode, 'windows', await frame.getByTestId('window').count(), 'tiles', await frame.locator('[data-tile]').count(), 'ms', took, 'long', await frame.evaluate(() => window.long.splice(0)))
    await page.keyboard.press('Escape')
    await frame.getByTestId('overview').waitFor({ state: 'detached' })
    console.log('left', await frame.evaluate(() => window.long.splice(0)))
  }
  console.log(await frame.evaluate(() => { const m = document.querySelector('main'); const r = []; for (let i = 0; i < 3; i++) { let t = performance.now(); m.style.contentVisibility = 'hidden'; m.offsetHeight; getComputedStyle(document.querySelector('footer')).color; r.push('cv ' + Math.round(performance.now() - t)); t = performance.now(); m.style.contentVisibility = ''; getComputedStyle(m.querySelector('[data-window] *')).color; m.querySelector('[data-window] button').focus(); r.push(Math.round(performance.now() - t)) } return [r.join(' '), m.querySelectorAll('*').length] }))
})
