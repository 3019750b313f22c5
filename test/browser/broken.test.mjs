// A shell that was broken by an edit: the console's frame says so and takes it back.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { browse, Choir, claim, desktop, visitor } from './harness.mjs'

const main = 'choiros/src/main.tsx'

test('a broken desktop', async (t) => {
  const choir = await Choir.start(t)
  const { context } = await visitor(await browse(t), choir)
  const page = await claim(context, choir)
  await desktop(page)
  const good = choir.cli(['files', 'cat', main])
  const card = page.getByRole('alertdialog', { name: 'The desktop is down' })

  for (const [what, source, words] of [
    ['throws', `throw new Error('out of order today')\n${good}`, /out of order today/],
    ['does not parse', `${good}\nconst = {\n`, /main\.tsx|loaded/],
  ]) {
    await t.test(`its source ${what}: Rewind is offered and brings it back`, async () => {
      choir.put(main, source)
      await page.reload()
      await card.waitFor({ timeout: 30_000 })
      assert.match(await card.innerText(), words)
      assert.match(await card.innerText(), /Checkpoint [0-9a-f]{8} is the last one that worked/)
      await page.locator('#state[data-state=broken]').waitFor()
      const button = card.getByRole('button', { name: 'Rewind' })
      assert.ok(await button.evaluate((e) => e === document.activeElement), 'the one button has the cursor')
      assert.equal(choir.cli(['files', 'cat', main]), source, 'nobody’s own edit is taken back without asking')
      await button.click()
      const frame = await desktop(page)
      await frame.getByTestId('desktop').waitFor()
      await card.waitFor({ state: 'hidden' })
      await page.locator('#state[data-state=awake]').waitFor()
      assert.equal(choir.cli(['files', 'cat', main]), good)
      const [restore, ...before] = choir.json('checkpoints')
      assert.equal(restore.kind, 'restore')
      assert.ok(before.some((c) => c.kind === 'safety'), 'what was there is kept, so it can be undone')
    })
  }

  await t.test('an app that throws leaves the desktop standing', async () => {
    choir.put('choiros/src/apps/welcome/Welcome.tsx', "export default function Welcome() {\n  throw new Error('no welcome today')\n}\n")
    const frame = await desktop(page)
    await frame.getByText('no welcome today').first().waitFor()
    await frame.getByTestId('icon-events').click()
    await frame.getByTestId('event').first().waitFor()
    assert.ok(await card.isHidden())
  })
})
