// Shows that a run waits for its model, why, until when, and the way out, and that one goes on from it when it has ended.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { browse, Choir, claim, desktop, gallery, modelServer, say, until, visitor } from './harness.mjs'

test('a model that can’t be had', async (t) => {
  const down = { role: 'director', match: 'Tidy the shed', text: 'overloaded', fault: { kind: 'status', status: 529, retry_after: '25' } }
  const model = await modelServer(t, { turns: [down, { role: 'director', match: 'Tidy the shed', calls: [{ name: 'report', args: { status: 'done', summary: 'The shed is tidy.' } }] },
    { role: 'director', match: 'The user continues run', calls: [{ name: 'report', args: { status: 'done', summary: 'The garden, too.' } }] }] })
  const choir = await Choir.start(t, { env: { ANTHROPIC_API_KEY: 'sk-ant-test-0123456789abcdef', ANTHROPIC_BASE_URL: model.url, CHOIR_MODEL: 'anthropic/claude-sonnet-4-6' } })
  const { context, faults } = await visitor(await browse(t), choir)
  const page = await claim(context, choir)
  const frame = await desktop(page)
  await say(frame, 'Tidy the shed')
  const waits = frame.locator('[data-testid=window][data-active=true]').getByTestId('model-waits')
  await waits.waitFor()
  assert.match(await waits.innerText(), /claude-sonnet-4-6/)
  await until('the run is waiting', () => choir.json('runs')[0].status === 'waiting')
  await frame.locator('[data-testid=run-status]').getByText('waiting for the model').waitFor()
  const pictures = gallery()
  await pictures.all(page, frame, 'waits')
  pictures.clean(t)
  // Another model is chosen by keyboard, and the call that waits turns to it at once.
  await waits.getByLabel('Another model for this run').fill('anthropic/claude-haiku-4-5')
  await page.keyboard.press('Enter')
  await frame.locator('[data-testid=run][data-status=done]').waitFor()
  await waits.waitFor({ state: 'hidden' })
  const types = choir.events().map((e) => e.type)
  for (const type of ['model.waiting', 'model.switched', 'model.resumed']) assert.ok(types.includes(type), type)
  // What comes next goes on from what has ended.
  await frame.getByLabel('Go on from this run').fill('Now the garden')
  await pictures.all(page, frame, 'continue')
  await page.keyboard.press('Enter')
  await frame.locator('[data-testid=window][data-active=true]').getByText('The garden, too.').first().waitFor()
  const [first, second] = choir.events().filter((e) => e.type === 'prompt.submitted')
  assert.equal(second.data.continues, first.run)
  assert.deepEqual(faults, [])
})
