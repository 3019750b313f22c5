// Shows a run's trace in the desktop: live while it goes on, with what went in and came out of each row, filtered, copied,
// by keyboard, after a reload; and how the computer's parts are. axe checks it, and pictures are kept in out/.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { axe, browse, Choir, claim, desktop, gallery, modelServer, say, sizes, until, visitor } from './harness.mjs'

const bash = (command) => ({ name: 'bash', args: { command } })
const usage = { in: 900, out: 40, cache_read: 2100 }

test('a trace', async (t) => {
  const model = await modelServer(t, {
    turns: [
      { role: 'director', match: 'Count the words', usage, calls: [{ name: 'delegate', args: { tasks: [{ kind: 'agent', goal: 'Count the words of the poem', tools: ['read', 'bash'], verify: { profile: 'none' } }] } }] },
      { role: 'associate', match: 'Count the words', usage, text: 'I look at the poem first.', calls: [bash('echo a poem of 1234 words')] },
      { role: 'associate', match: 'Count the words', usage, calls: [{ name: 'read', args: { path: 'workspace/no-such-poem.md' } }] },
      { role: 'associate', match: 'Count the words', usage, hold: 'finish', calls: [{ name: 'finish', args: { status: 'ok', summary: 'It has 1234 words.' } }] },
      { role: 'director', match: 'Count the words', usage, calls: [{ name: 'report', args: { status: 'done', summary: 'The poem has 1234 words.' } }] },
    ],
  })
  const choir = await Choir.start(t, { env: { ANTHROPIC_API_KEY: 'sk-ant-test-0123456789abcdef', ANTHROPIC_BASE_URL: model.url, CHOIR_MODEL: 'anthropic/claude-sonnet-4-6' } })
  const { context, faults } = await visitor(await browse(t), choir)
  await context.grantPermissions(['clipboard-write'])
  const page = await claim(context, choir)
  const frame = await desktop(page)
  const front = frame.locator('[data-testid=window][data-active=true]')
  const trace = front.getByTestId('trace')
  const spans = trace.getByTestId('span')
  const of = (kind, text) => trace.locator(`[data-testid=span][data-kind=${kind}]`).filter({ hasText: text })
  const grid = trace.getByRole('treegrid')
  const g = gallery()
  // What is in the clipboard, pasted where it can be read: no page of ours may read it by itself.
  const copied = async () => {
    const field = trace.getByRole('textbox', { name: 'Filter' })
    await field.fill('')
    await field.press('Control+V')
    const text = await field.inputValue()
    await field.fill('')
    return text
  }

  await t.test('says what it is for while there is no run', async () => {
    await say(frame, '/new')
    await frame.getByTestId('icon-trace').click()
    await front.getByText('No run yet').waitFor()
    await say(frame, '/new')
  })

  await t.test('is live, and opened from the run', async (t2) => {
    await say(frame, 'Count the words')
    await front.getByTestId('run-trace').click()
    // The second tool has failed, and the model is held before its last word.
    await of('tool', 'read').waitFor()
    await trace.locator('[data-testid=span][data-kind=tool][data-standing=failed]').waitFor()
    assert.equal(await trace.getAttribute('data-ended'), 'false')
    await of('run', '').and(trace.locator('[data-standing=open]')).waitFor()
    assert.match(await trace.getByTestId('trace-totals').innerText(), /Cached\s+70 %/)
    await g.one(page, frame, '1440-night-trace-live')
    await front.getByTestId('trace-health').click()
    const health = front.getByTestId('health')
    await health.getByTestId('part').filter({ hasText: 'keeper' }).and(health.locator('[data-state=running]')).waitFor()
    await health.getByTestId('under-way').filter({ hasText: 'Count the words' }).waitFor()
    await g.one(page, frame, '1440-night-health-working')
    await front.getByRole('button', { name: 'Runs', exact: true }).click()
    model.release('finish')
    await trace.and(frame.locator('[data-ended=true]')).waitFor()
    await of('run', '').and(trace.locator('[data-standing=unknown]')).waitFor() // nothing was verified
    g.clean(t2)
  })

  const run = choir.json('runs')[0].id
  const answer = choir.json('run', 'trace', run)

  await t.test('has arguments and results in a row', async () => {
    await of('tool', 'bash').first().click()
    await grid.press('Enter')
    const details = trace.getByTestId('trace-details')
    await details.locator('pre[data-part=Arguments]').getByText('echo a poem of 1234 words').waitFor()
    await details.locator('pre[data-part=Result]').getByText('a poem of 1234 words').waitFor()
    await details.getByRole('button', { name: 'Agent Associate' }).waitFor()
    await details.getByRole('button', { name: 'Copy row' }).click()
    await details.getByText('Copied').waitFor()
    const row = JSON.parse(await copied())
    assert.equal(row.span.attributes['gen_ai.tool.name'], 'bash')
    assert.deepEqual(row.events.map((e) => e.type), ['tool.called', 'tool.returned'])
    await g.all(page, frame, 'night-trace-details')
    await trace.getByRole('button', { name: 'Close the details' }).click()
    await of('model', 'claude-sonnet-4-6').nth(2).click() // the Director's two stand before it
    await grid.press('Enter')
    await details.locator('pre[data-part="What it wrote"]').getByText('I look at the poem first.').waitFor()
    await page.keyboard.press('Escape')
    await details.waitFor({ state: 'hidden' })
  })

  await t.test('is copied as JSON, as the command line has it', async () => {
    await trace.getByRole('button', { name: 'Copy as JSON' }).click()
    await trace.getByText('Copied').waitFor()
    assert.deepEqual(JSON.parse(await copied()), answer)
  })

  await t.test('goes by keyboard', async () => {
    const all = await spans.count()
    assert.equal(all, answer.spans.length)
    await grid.focus()
    const at = () => grid.evaluate((e) => document.getElementById(e.getAttribute('aria-activedescendant')).dataset.kind)
    const goes = (key, kind) => page.keyboard.press(key).then(() => until(`${key} leads to ${kind}`, async () => (await at()) === kind))
    const expanded = () => grid.evaluate((e) => document.getElementById(e.getAttribute('aria-activedescendant')).getAttribute('aria-expanded'))
    await goes('Home', 'run')
    await goes('ArrowDown', 'agent')
    await page.keyboard.press('ArrowLeft')
    await until('it is closed', async () => (await expanded()) === 'false')
    await until('what is below it is hidden', async () => (await spans.count()) < all)
    await page.keyboard.press('ArrowRight')
    await until('it shows again', async () => (await spans.count()) === all)
    await goes('ArrowRight', 'model')
    await goes('ArrowLeft', 'agent')
    await goes('End', 'model')
    await goes('Home', 'run')
    await page.keyboard.press('Enter')
    await trace.getByTestId('trace-details').getByRole('heading', { name: 'Run' }).and(frame.locator(':focus')).waitFor()
    // With the details open, the rows are gone through all the same, and the details follow.
    await grid.focus()
    await goes('ArrowDown', 'agent')
    await trace.getByRole('heading', { name: 'Agent Director' }).waitFor()
    await goes('ArrowUp', 'run')
    await page.keyboard.press('Escape')
    await trace.getByTestId('trace-details').waitFor({ state: 'hidden' })
    await until('the rows have the focus again', () => grid.evaluate((e) => e === document.activeElement))
  })

  await t.test('is filtered', async () => {
    await trace.getByLabel('only failed').check()
    const found = spans.and(trace.locator('[data-faint=false]'))
    await until('what failed shows', async () => (await found.count()) === 1)
    await trace.getByLabel('only failed').uncheck()
    await trace.getByLabel('Kind').selectOption('model')
    await until('the calls of models show', async () => (await found.count()) === 5)
    await trace.getByRole('textbox', { name: 'Filter' }).fill('no such span')
    await trace.getByRole('button', { name: 'Clear the filter' }).click()
    await until('all of it shows', async () => (await spans.count()) === answer.spans.length)
  })

  await t.test('is there after a reload', async () => {
    await page.reload()
    const again = await desktop(page)
    await again.locator(`[data-testid=window][data-active=true] [data-testid=trace][data-run="${run}"][data-ended=true]`).waitFor()
  })

  await t.test('the look', async (t2) => {
    const f = await desktop(page)
    for (const theme of ['night', 'day']) {
      await say(f, `/theme ${theme}`)
      await f.locator(`html[data-scheme=${theme === 'night' ? 'dark' : 'light'}]`).waitFor()
      await say(f, '/new')
      await until('no window is open', async () => (await f.locator('[data-testid=window][data-hidden=false]').count()) === 0)
      await f.getByTestId('icon-trace').click()
      const open = f.locator('[data-testid=window][data-active=true]')
      await open.getByTestId('trace-run').first().waitFor()
      await g.all(page, f, `${theme}-trace-list`)
      await open.getByTestId('trace-run').filter({ hasText: 'Count the words' }).click()
      await open.locator('[data-testid=trace][data-ended=true]').waitFor()
      await g.all(page, f, `${theme}-trace`)
      await open.getByTestId('trace-health').click()
      await open.getByTestId('part').first().waitFor()
      await g.all(page, f, `${theme}-health`)
      await open.getByRole('button', { name: 'Close Trace', exact: true }).click()
    }
    g.clean(t2)
  })
  await t.test('two windows of Trace are told apart by the names of their regions', async () => {
    const f = await desktop(page)
    await f.getByTestId('icon-trace').click()
    await f.locator('[data-testid=window][data-active=true][aria-label="Trace"]').getByTestId('trace-run').first().waitFor()
    await say(f, '/runs')
    await f.locator('[data-testid=window][data-active=true]').getByTestId('run-trace').click()
    await until('two are open', async () => (await f.locator('[data-testid=window][data-app=trace][data-hidden=false] nav[aria-label^="Runs in"]').count()) === 2)
    assert.deepEqual((await axe(f)).filter((v) => v.startsWith('landmark-unique')), [])
  })
  assert.deepEqual(faults, [])
})
