// Takes pictures of the built desktop at the sizes and in the themes in which it must look
// good.
//   npm run build && node look/shots.mjs OUT

import { mkdir } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { readFile } from 'node:fs/promises'
import { connect, launch, open } from './browser.mjs'
import { serve } from './host.mjs'
import { World } from './world.mjs'

const out = process.argv[2] ?? 'look/out'
await mkdir(out, { recursive: true })
const axe = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
const host = await serve(new URL('../dist', import.meta.url).pathname)
const browser = await launch()
let bad = 0

for (const [w, h] of [[1440, 900], [1024, 768], [390, 844]]) {
  for (const theme of ['night', 'day']) {
    const context = await browser.newContext({ viewport: { width: w, height: h }, hasTouch: w < 640, isMobile: w < 640, deviceScaleFactor: 1 })
    const page = await context.newPage()
    const world = new World()
    const faults = await connect(page, world)
    await open(page, host.url)
    if (theme === 'day') await page.getByRole('button', { name: 'Theme Day' }).click()
    const shot = async (name) => {
      await page.waitForTimeout(350)
      await page.screenshot({ path: `${out}/${w}-${theme}-${name}.png` })
      await page.evaluate(axe)
      const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }))
      for (const v of violations) {
        bad++
        console.log(`${w}-${theme}-${name}: ${v.id} (${v.impact}): ${v.help}\n    ${v.nodes.slice(0, 3).map((n) => `${n.html.slice(0, 160)} ${n.any[0]?.message ?? ''}`).join('\n    ')}`)
      }
    }
    const icon = (id) => page.getByTestId(`icon-${id}`).click()
    const phone = w < 640
    const home = async () => phone && (await page.getByRole('button', { name: /^Minimise/ }).last().click())
    await shot('empty')
    await icon('welcome')
    await shot('welcome')
    await home()
    await icon('timetravel')
    await page.getByTestId('checkpoint').nth(2).click()
    await shot('timetravel')
    await page.getByTestId('restore').click()
    await page.getByTestId('restore-go').waitFor()
    await shot('restore')
    await home()
    if (phone) await icon('events')
    else {
      await page.keyboard.press('Control+Alt+W')
      await icon('events')
    }
    await shot('events')
    await home()
    await page.keyboard.press('Control+k')
    await page.keyboard.type('/runs')
    await page.keyboard.press('Enter')
    await page.getByTestId('run').waitFor()
    await page.getByTestId('answer').waitFor()
    await shot('run')
    world.propose(world.run, 1)
    await page.getByRole('button', { name: 'Look' }).waitFor()
    await shot('waiting')
    await page.getByRole('button', { name: 'Look' }).click()
    await page.getByTestId('proposal').waitFor()
    await shot('proposal')
    await page.getByTestId('proposal').getByRole('button', { name: 'Accept' }).click()
    await page.getByTestId('proposal').waitFor({ state: 'detached' })
    await page.keyboard.press('Control+k')
    await page.keyboard.type('/')
    await shot('slash')
    await page.keyboard.press('Backspace')
    await page.keyboard.type('!git log --oneline -3')
    await page.keyboard.press('Enter')
    await page.getByText('exit 0').filter({ visible: true }).first().waitFor()
    await shot('command')
    await home()
    for (const f of faults) {
      bad++
      console.log(`${w}-${theme}: ${f}`)
    }
    await context.close()
  }
}
await browser.close()
await host.close()
console.log(bad === 0 ? 'Nothing to complain about.' : `${bad} complaints.`)
process.exit(bad === 0 ? 0 : 1)
