// Shows what a prompt can choose beside its words: by keyboard, for that prompt alone, kept while it is being written, and
// no more than this computer and its models have.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { browse, Choir, claim, desktop, gallery, modelServer, say, sizes, until, visitor } from './harness.mjs'

const finish = (match) => ({ role: 'associate', match, calls: [{ name: 'finish', args: { status: 'ok', summary: 'It is said.' } }] })
const report = (match) => ({ role: 'director', match, calls: [{ name: 'report', args: { status: 'done', summary: 'It is said.' } }] })

test('what a prompt can choose', async (t) => {
  const model = await modelServer(t, { turns: [finish('Say something at once'), report('Say something as usual'), report('Say something planned')] })
  const choir = await Choir.start(t, { env: { ANTHROPIC_API_KEY: 'sk-ant-test-0123456789abcdef', ANTHROPIC_BASE_URL: model.url, CHOIR_MODEL: 'anthropic/claude-sonnet-4-6', CHOIR_MODELS_EFFORTS_ASSOCIATE: 'low' } })
  const { context, faults } = await visitor(await browse(t), choir)
  const page = await claim(context, choir)
  let frame = await desktop(page)
  const uses = () => frame.getByTestId('uses')
  const panel = () => frame.getByTestId('choices')
  const focused = () => frame.evaluate(() => document.activeElement.closest('label')?.textContent.trim() ?? document.activeElement.dataset.testid)
  const sent = () => choir.events().filter((e) => e.type === 'prompt.submitted').map(({ data: { text, ...how } }) => how)
  const ended = (n) => until(`${n} runs have ended`, () => choir.json('runs').filter((r) => r.status === 'done').length === n)

  await t.test('the line opens by keyboard', async () => {
    await frame.getByTestId('prompt').fill('Say something at once')
    assert.match(await uses().innerText(), /claude-sonnet-4-6/)
    await frame.getByTestId('prompt').press('Tab')
    assert.equal(await focused(), 'uses')
    await page.keyboard.press('Enter')
    await panel().waitFor()
    await until('the cursor is on the way', async () => (await focused()) === 'Automatic')
    await panel().getByText('It thinks as configured: the Director as its model does, Associates low.').waitFor()
    await panel().getByText('The Director plans it.', { exact: true }).waitFor() // direct_words is 0 here
    await page.keyboard.press('ArrowRight')
    await page.keyboard.press('ArrowRight')
    assert.equal(await focused(), 'One Associate at once')
    await page.keyboard.press('Tab')
    await page.keyboard.press('ArrowRight')
    assert.match(await focused(), /^(None|Little)$/)
    await panel().getByRole('radio', { name: 'Much' }).check()
    await frame.getByLabel('Let me look at it first').focus()
    await page.keyboard.press('Space')
    assert.match(await uses().innerText(), /one Associate · thinks much · you look first/)
  })

  await t.test('its pictures', async () => {
    const { one, clean } = gallery()
    for (const theme of ['day', 'night']) {
      await frame.getByRole('button', { name: theme === 'day' ? 'Theme Day' : 'Theme Night' }).click()
      await frame.locator(`html[data-scheme=${theme === 'night' ? 'dark' : 'light'}]`).waitFor()
      await page.emulateMedia({ colorScheme: theme === 'night' ? 'dark' : 'light' })
      for (const [width, height] of sizes) {
        await page.setViewportSize({ width, height })
        if (!(await panel().isVisible())) await uses().click()
        await panel().waitFor()
        await one(page, frame, `${width}-${theme}-choices`)
        await frame.getByTestId('prompt').focus()
        await page.keyboard.press('Escape')
        await panel().waitFor({ state: 'hidden' })
        await one(page, frame, `${width}-${theme}-chosen`)
      }
    }
    await page.setViewportSize({ width: 1440, height: 900 })
    clean(t)
  })

  await t.test('what is being written keeps what was chosen for it', async () => {
    await page.reload()
    frame = await desktop(page)
    await until('the line is there again', async () => (await frame.getByTestId('prompt').inputValue()) === 'Say something at once')
    assert.match(await uses().innerText(), /one Associate · thinks much · you look first/)
  })

  await t.test('it is sent, and counts for that prompt alone', async () => {
    await frame.getByTestId('prompt').press('Enter')
    await ended(1)
    assert.deepEqual(sent(), [{ route: 'direct', effort: 'high', review: true }])
    assert.doesNotMatch(await uses().innerText(), /Associate|thinks|look/)
    await say(frame, 'Say something as usual')
    await ended(2)
    assert.deepEqual(sent()[1], {})
  })

  await t.test('a command chooses nothing', async () => {
    await frame.getByTestId('prompt').fill('!ls')
    assert.equal(await frame.getByRole('button', { name: /How this prompt runs/ }).count(), 0)
    await frame.getByTestId('prompt').fill('')
  })

  await t.test('Escape leaves the choices, with the cursor on their line', async () => {
    await uses().click()
    await panel().getByRole('radio', { name: 'Plan it first' }).check()
    const models = await panel().getByLabel('Model').locator('option').allInnerTexts()
    assert.match(models[0], /As usual \(.*claude-sonnet-4-6\)/)
    assert.ok(models.includes('fast') && !models.some((m) => /rehearsal|openai/.test(m)), models.join(', '))
    await panel().getByLabel('Model').selectOption('fast')
    await panel().getByLabel('Cost, at most').fill('7')
    await panel().getByText('A number above 0 and below 5, which is what this computer allows.').waitFor()
    await panel().getByLabel('Cost, at most').fill('0,5')
    assert.match(await uses().innerText(), /planned first · fast · at most \$0.5/)
    await page.keyboard.press('Escape')
    await panel().waitFor({ state: 'hidden' })
    assert.equal(await focused(), 'uses')
    await say(frame, 'Say something planned')
    await ended(3)
    const { budget, ...how } = sent()[2]
    assert.deepEqual([how, budget.cost_usd], [{ route: 'plan', model: 'fast' }, 0.5])
    assert.match(choir.json('runs')[0].model, /haiku|fast/)
  })
  assert.deepEqual(faults, [])
})

test('what this computer does not have is not offered', async (t) => {
  const choir = await Choir.start(t, { env: { CHOIR_LOOPS_REVIEW: 'true' } })
  const { context, faults } = await visitor(await browse(t), choir)
  const frame = await desktop(await claim(context, choir))
  await until('the line says that one looks first', async () => /rehearsal.*you look first/s.test(await frame.getByTestId('uses').innerText()))
  await frame.getByTestId('uses').click()
  const panel = frame.getByTestId('choices')
  await panel.getByText('You look at everything first: this computer is set so.').waitFor()
  assert.equal(await panel.getByRole('radio').count(), 0, 'neither ways nor efforts')
  assert.equal(await panel.getByRole('combobox').count() + (await panel.getByRole('textbox').count()), 0, 'neither a model nor what it costs')
  assert.equal(await panel.getByRole('checkbox').count(), 0, 'what the owner wants is not to be chosen')
  assert.deepEqual(faults, [])
})
