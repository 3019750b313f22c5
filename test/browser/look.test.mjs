// Shows what people see, at three sizes and in both themes: axe checks it, and pictures of it are
// kept in out/ for people to look at.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { browse, Choir, claim, desktop, gallery, say, sizes, until, visitor } from './harness.mjs'

test('the look', async (t) => {
  const choir = await Choir.start(t)
  const browser = await browse(t)
  const { context } = await visitor(browser, choir)
  const { one: shot, clean } = gallery()

  await t.test('claim', async (t2) => {
    for (const [width, height] of sizes) {
      for (const scheme of ['dark', 'light']) {
        const guest = await browser.newContext({ viewport: { width, height }, colorScheme: scheme, isMobile: width < 640, hasTouch: width < 640, reducedMotion: 'reduce' })
        const page = await guest.newPage()
        await page.goto(choir.claim_url)
        await page.getByRole('button', { name: 'Open my computer' }).waitFor()
        await shot(page, null, `${width}-${scheme === 'dark' ? 'night' : 'day'}-claim`)
        await guest.close()
      }
    }
    clean(t2)
  })

  const page = await claim(context, choir)
  await desktop(page)
  await page.locator('#rehearsal').waitFor()
  const home = page.url()
  const storageState = await context.storageState()
  await context.close() // nobody looks there any more

  for (const theme of ['night', 'day']) {
    await t.test(theme, async (t2) => {
      const scheme = theme === 'night' ? 'dark' : 'light'
      const { context: own, faults } = await visitor(browser, choir, { colorScheme: scheme, storageState })
      const at = await own.newPage()
      await at.goto(home)
      const frame = await desktop(at)
      const all = async (what) => {
        for (const [width, height] of sizes) {
          await at.setViewportSize({ width, height })
          await frame.locator(`[data-testid=window][data-active=true][data-phone=${width < 640}]`).waitFor()
          await shot(at, frame, `${width}-${theme}-${what}`)
        }
        await at.setViewportSize({ width: 1440, height: 900 })
      }
      const fresh = async () => {
        await say(frame, '/new')
        await until('no window is open', async () => (await frame.locator('[data-testid=window][data-hidden=false]').count()) === 0)
      }
      await say(frame, `/theme ${theme}`)
      await frame.locator(`html[data-scheme=${scheme}]`).waitFor()
      await fresh()
      await frame.getByTestId('icon-welcome').click()
      await frame.getByTestId('rehearsal').waitFor()
      await all('welcome')

      await fresh()
      await say(frame, theme === 'night' ? 'Make the desktop background #0b1526' : 'change the background to #e3e7dc')
      const run = frame.locator('[data-testid=window][data-active=true]').getByTestId('run')
      await run.and(frame.locator('[data-status=done]')).waitFor()
      await run.getByTestId('answer').waitFor()
      await all('run')

      await fresh()
      await frame.getByTestId('icon-timetravel').click()
      await frame.locator('[data-testid=checkpoint][data-kind=task]').first().click()
      await frame.getByTestId('diff').waitFor()
      await all('timetravel')
      await frame.locator('[data-testid=checkpoint][data-kind=initial]').click() // a restore of the newest checkpoint changes nothing
      await frame.getByTestId('restore').click()
      await frame.locator('[data-testid=restore-go]:enabled').waitFor()
      await shot(at, frame, `1440-${theme}-restore`)

      await at.getByRole('button', { name: 'Account' }).click()
      await shot(at, null, `1440-${theme}-account`)
      await at.keyboard.press('Escape')
      await at.getByRole('button', { name: /^Approvals/ }).click()
      await shot(at, null, `1440-${theme}-approvals`)
      await at.keyboard.press('Escape')
      await at.getByRole('button', { name: 'Rewind' }).click()
      await at.locator('#ask-words p').nth(0).filter({ hasNotText: 'Looking' }).waitFor()
      await shot(at, null, `1440-${theme}-rewind`)
      await at.getByRole('button', { name: 'Keep it as it is' }).click()
      await own.close()
      assert.deepEqual(faults, [])
      clean(t2)
    })
  }
})
