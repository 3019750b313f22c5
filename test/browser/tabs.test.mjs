// Shows that two tabs of one browser share what waits to be sent, so that a prompt that was queued
// in one is never lost because of the other.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { browse, Choir, claim, desktop, say, scratch, until, visitor } from './harness.mjs'

test('what two tabs queued is sent, once', async (t) => {
  const data = scratch(t)
  let choir = await Choir.start(t, { data })
  const { context } = await visitor(await browse(t), choir)
  const first = await claim(context, choir)
  await desktop(first)
  const second = await context.newPage()
  await second.goto(first.url())
  await desktop(second)
  const tabs = [first, second]
  const shown = async (page) => (await page.locator('iframe[data-role=shown]').elementHandle()).contentFrame()
  await choir.kill()
  const words = tabs.map((_, n) => `say hello from tab ${n + 1}`)
  for (const [n, page] of tabs.entries()) {
    await page.bringToFront()
    const frame = await shown(page)
    await frame.getByTestId('offline').waitFor()
    await say(frame, words[n])
    await frame.getByTestId('waiting').waitFor()
  }
  // The first tab writes again, after the second has written.
  words.push('and one more from tab 1')
  await say(await shown(first), words[2])
  for (const page of tabs) await page.close()

  choir = await Choir.start(t, { data, listen: `127.0.0.1:${choir.port}` })
  const later = await context.newPage()
  await later.goto(choir.url)
  const frame = await desktop(later)
  const prompts = () => choir.events().filter((e) => e.type === 'prompt.submitted').map((e) => e.data.text)
  await until(() => `all are in the log: ${prompts()}`, () => words.every((w) => prompts().includes(w)))
  await frame.getByTestId('waiting').waitFor({ state: 'detached' })
  assert.deepEqual(prompts().toSorted(), words.toSorted(), 'each once')
  assert.equal(await frame.evaluate(() => Object.keys(localStorage).filter((k) => k.startsWith('choir.outbox')).length), 0)
})
