// Shows what takes its time on any machine: pages and a control plane that stay silent for longer
// than anything waits for them. The tests wait side by side, in a file of their own, while other
// tests use the processors.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { desktop, opened, say, until, visitor } from './harness.mjs'

describe('silence', { concurrency: true }, () => {
  test('a page whose scripts are blocked harms nobody else', async (t) => {
    const { choir, browser, context: theirs, page } = await opened(t)
    await desktop(page)
    const { context } = await visitor(browser, choir, { storageState: await theirs.storageState() })
    await context.route(/\.desk\.choir\.localhost/, (route) => (route.request().resourceType() === 'script' ? route.abort() : route.continue()))
    const other = await context.newPage()
    await other.goto(choir.url)
    const card = other.getByRole('alertdialog')
    await card.getByText('did not come up here').waitFor()
    // No part of choir ever waited longer than this for a silent page.
    await until('more than 25 s have gone by', () => other.evaluate(() => performance.now() > 32_000))
    assert.equal(choir.events().filter((e) => e.type === 'desktop.broke').length, 0)
    assert.equal(choir.json('checkpoints').filter((c) => c.kind === 'restore').length, 0)
    assert.equal(await page.locator('#state').getAttribute('data-state'), 'awake')
    assert.ok(await page.getByRole('alertdialog').isHidden())
  })

  // This is longer than the desktop waits for an answer, and shorter than it takes to find that its
  // connection is dead.
  test('choir stands still, and goes on', async (t) => {
    const { choir, page } = await opened(t)
    const frame = await desktop(page)
    await say(frame, '!for n in $(seq 1 8); do echo "round $n"; sleep 1; done')
    await frame.getByRole('log').getByText('round 1').waitFor()
    process.kill(choir.pid, 'SIGSTOP')
    try {
      const stopped = Date.now()
      await page.locator('#state[data-state=gone]').waitFor()
      await until('an answer is late', () => Date.now() - stopped > 24_000)
    } finally {
      process.kill(choir.pid, 'SIGCONT')
    }
    await page.locator('#state[data-state=awake]').waitFor()
    await frame.getByRole('log').getByText('round 8').waitFor()
    await frame.getByText('exit 0').waitFor()
    assert.deepEqual(choir.events().filter((e) => e.type === 'command.finished').map((e) => e.data.exit_code), [0])
    assert.equal(choir.events().filter((e) => e.type === 'desktop.broke').length, 0)
  })
})
