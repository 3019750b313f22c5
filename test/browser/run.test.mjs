// Shows what a run's window says of a run: what it waits for and where that is answered, what its
// user said, what was not allowed, how long it goes on, and what it goes on from. Pictures are kept.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { browse, Choir, claim, desktop, gallery, modelServer, say, until, visitor } from './harness.mjs'

const report = (match, summary) => ({ role: 'director', match, calls: [{ name: 'report', args: { status: 'done', summary } }] })
const delegate = (match, goal, tools) => ({ role: 'director', match, usage: { in: 900, out: 40 }, calls: [{ name: 'delegate', args: { tasks: [{ kind: 'agent', goal, tools, verify: { profile: 'none' } }] } }] })
const order = { method: 'POST', url: 'https://shop.invalid/orders', content_type: 'application/json', body: '{"item":"a ladder"}', reason: 'The user wants a ladder.' }
const choices = ['red like the neighbours’ door', 'green', 'blue, as it was before the renovation in 1998, if that paint can still be had']

test('the window of a run', async (t) => {
  const model = await modelServer(t, {
    turns: [
      delegate('Count slowly', 'Count it', ['read']),
      { role: 'associate', match: 'Count it', hold: 'count', calls: [{ name: 'finish', args: { status: 'ok', summary: 'Counted.' } }] },
      report('Count slowly', 'Counted.'),
      delegate('Place the order', 'Order it', ['web_request']),
      { role: 'associate', match: 'Order it', calls: [{ name: 'web_request', args: order }] },
      { role: 'associate', match: 'Order it', calls: [{ name: 'finish', args: { status: 'ok', summary: 'Tried.' } }] },
      report('Place the order', 'Done.'),
      report('And another one', 'None was to be had.'),
      { role: 'director', match: 'Paint the door', calls: [{ name: 'ask_user', args: { text: 'Which colour shall the door have? It is seen from the street and from the garden.', choices, default: 'green', deadline_s: 3600 } }] },
      report('Paint the door', 'It is painted.'),
    ],
  })
  const choir = await Choir.start(t, { env: { ANTHROPIC_API_KEY: 'sk-ant-test-0123456789abcdef', ANTHROPIC_BASE_URL: model.url, CHOIR_MODEL: 'anthropic/claude-sonnet-4-6' } })
  const { context, faults } = await visitor(await browse(t), choir, { viewport: { width: 1280, height: 800 } })
  const page = await claim(context, choir)
  const frame = await desktop(page)
  const win = frame.locator('[data-testid=window][data-active=true]')
  const run = win.getByTestId('run')
  const done = () => win.locator('[data-testid=run][data-status=done]').waitFor()
  const { one, clean } = gallery()
  const pictures = async (name) => {
    for (const theme of ['night', 'day']) {
      await say(frame, `/theme ${theme}`)
      await frame.locator(`html[data-scheme=${theme === 'night' ? 'dark' : 'light'}]`).waitFor()
      for (const [width, height] of [[1280, 800], [390, 844]]) {
        await page.setViewportSize({ width, height })
        await one(page, frame, `${width}-${theme}-run-${name}`)
      }
    }
    await page.setViewportSize({ width: 1280, height: 800 })
  }

  await t.test('its time is what a clock says, and what was said to it stays', async () => {
    await say(frame, 'Count slowly')
    await win.getByText('Count it').waitFor()
    await win.getByLabel('Steer this run').fill('count the title too')
    await page.keyboard.press('Enter')
    await win.getByTestId('said').getByText('count the title too').waitFor()
    await until('more than two seconds have passed', async () => /^([2-9]|\d\d)(\.\d)? s|min/.test(await win.getByTestId('run-cost').innerText()))
    model.release('count')
    await done()
    await win.getByTestId('said').getByText('count the title too').waitFor()
    assert.equal(await win.getByRole('button', { name: 'Undo' }).count(), 0, 'nothing is changed, so nothing is undone')
  })

  await t.test('what it asks for is answered on the console, and a no is seen', async () => {
    await say(frame, 'Place the order')
    const asks = win.getByTestId('asks-console')
    await asks.getByText('It wants to send a request (POST) to shop.invalid.').waitFor()
    await win.getByTestId('run-status').getByText('waiting for you').waitFor()
    assert.equal(await run.locator('[data-mark=active]').count(), 0, 'nothing turns while it waits')
    await pictures('asks')
    await asks.getByRole('button', { name: 'Answer on the console' }).click()
    await page.getByRole('region', { name: 'Approvals' }).getByText('shop.invalid').first().waitFor()
    await page.getByRole('button', { name: 'Deny' }).click()
    await page.keyboard.press('Escape')
    await done()
    await win.getByText('Request to shop.invalid: denied').waitFor()
    await pictures('denied')
  })

  await t.test('who continues it goes on in the window of the new one, which says so', async () => {
    await win.getByLabel('Go on from this run').fill('And another one')
    await page.keyboard.press('Enter')
    await win.getByTestId('run-continues').getByRole('button', { name: 'Place the order' }).waitFor()
    await until('the cursor is in the new window', () => win.getByRole('textbox').evaluate((e) => e === document.activeElement))
    await done()
    assert.equal(await frame.getByTestId('toast').filter({ hasText: 'None was to be had.' }).count(), 0, 'its window is in front')
    await win.getByTestId('run-continues').getByRole('button').click()
    await win.getByText('Request to shop.invalid: denied').waitFor()
  })

  await t.test('a question fits on a phone, and stays with its answer', async () => {
    await say(frame, 'Paint the door')
    await win.getByTestId('question').waitFor()
    assert.equal(await run.locator('[data-mark=active]').count(), 0, 'nothing turns while it waits')
    await pictures('question')
    await page.setViewportSize({ width: 390, height: 844 })
    const wide = () => win.getByTestId('question').evaluate((e) => [...e.querySelectorAll('p, button')].filter((x) => x.getBoundingClientRect().right > innerWidth).map((x) => x.textContent))
    assert.deepEqual(await wide(), [])
    await page.setViewportSize({ width: 1280, height: 800 })
    await win.getByTestId('question').getByRole('button', { name: choices[0] }).click()
    await done()
    assert.match(await win.getByTestId('said').innerText(), /Which colour[\s\S]*red like/)
    await pictures('said')
  })
  clean(t)
  assert.deepEqual(faults, [])
})
