// Shows what a computer was told to keep: by whom, from which, what goes with it; live, and only to be read there.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { browse, Choir, claim, desktop, gallery, say, sizes, until, visitor } from './harness.mjs'

test('what is kept', async (t) => {
  const choir = await Choir.start(t)
  const { context, faults } = await visitor(await browse(t), choir)
  const page = await claim(context, choir)
  const frame = await desktop(page)
  const { one, clean } = gallery()
  const facts = frame.getByTestId('fact')
  await say(frame, '/open kept')
  await frame.getByText('Nothing is kept yet').waitFor()

  const tabs = choir.json('remember', 'Always indent with tabs.')
  choir.json('remember', '--from', tabs.id, 'In Makefiles, too.')
  choir.json('remember', 'The reports go to Ada, in one page, without tables.')
  await until('all three are listed', async () => (await facts.count()) === 3)
  assert.match(await facts.nth(1).innerText(), /In Makefiles, too\.\s+follows from “Always indent with tabs\.”/)
  // By keyboard: what goes with it is shown first.
  await facts.nth(2).getByRole('button', { name: 'Forget…' }).focus()
  await page.keyboard.press('Enter')
  await facts.nth(2).getByText('With it goes what follows from it, 1 fact:').waitFor()
  assert.ok((await facts.nth(2).innerText()).includes(`choir forget ${tabs.id}`))
  for (const theme of ['night', 'day']) {
    await say(frame, `/theme ${theme}`)
    await frame.locator(`html[data-scheme=${theme === 'night' ? 'dark' : 'light'}]`).waitFor()
    await page.emulateMedia({ colorScheme: theme === 'night' ? 'dark' : 'light' })
    for (const [width, height] of sizes) {
      await page.setViewportSize({ width, height })
      await one(page, frame, `${width}-${theme}-kept`)
    }
  }
  await page.setViewportSize({ width: 1440, height: 900 })
  clean(t)

  choir.cli(['forget', tabs.id])
  await until('what followed is gone with it', async () => (await facts.count()) === 1)
  choir.cli(['undo'])
  await until('and kept again', async () => (await facts.count()) === 3)
  assert.deepEqual(faults, [])
})
