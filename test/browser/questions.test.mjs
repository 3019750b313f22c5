// Shows what only a person can decide: the Director's question, how it is answered by keyboard in
// the desktop and in the console, and what happens when nobody answers.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { axe, browse, Choir, claim, desktop, modelServer, say, until, visitor } from './harness.mjs'

// A run that asks once and reports the answer, which is the last one in what the model is told: earlier runs are told of, too.
const asks = (match, question) => [
  { role: 'director', match, calls: [{ name: 'ask_user', args: question }] },
  { role: 'director', match, capture: { told: '(?s).*(The user answers: [a-z ]+|the default counts: [a-z ]+)' }, calls: [{ name: 'report', args: { status: 'done', summary: 'Told: {{told}}' } }] },
]

test('questions', async (t) => {
  const model = await modelServer(t, {
    turns: [
      ...asks('Paint the first door', { text: 'Which colour shall the door have?', choices: ['red', 'green', 'blue'], default: 'red', deadline_s: 3600 }),
      ...asks('Paint the second door', { text: 'What shall stand on the door?', deadline_s: 3600 }),
      ...asks('Paint the fourth door', { text: 'Which side?', choices: ['left', 'right'], default: 'left', deadline_s: 3600 }),
      ...asks('Paint the third door', { text: 'Shall the door be open?', choices: ['yes', 'no'], default: 'no', deadline_s: 5 }),
    ],
  })
  const choir = await Choir.start(t, { env: { ANTHROPIC_API_KEY: 'sk-ant-test-0123456789abcdef', ANTHROPIC_BASE_URL: model.url, CHOIR_MODEL: 'anthropic/claude-sonnet-4-6' } })
  const { context, faults } = await visitor(await browse(t), choir)
  const page = await claim(context, choir)
  const frame = await desktop(page)
  const bell = page.locator('#bell')
  const sheet = page.getByRole('region', { name: 'Approvals' })
  const shown = frame.locator('[data-testid=window][data-active=true] [data-testid=run]')
  const card = shown.getByTestId('question')
  const none = () => bell.and(page.locator('[aria-label="Approvals"]')).waitFor()
  // Returns a run, and the answer to its question in the log, once the run is done.
  const ended = async (prompt) => {
    const run = await until(`“${prompt}” is done`, () => choir.json('runs').find((r) => r.prompt === prompt && r.status === 'done'))
    const of = (type) => choir.events().filter((e) => e.run === run.id && e.type === type)
    const [answer, ...more] = of('question.answered')
    assert.deepEqual(more, [], 'one answer')
    assert.equal(answer.data.question, of('question.asked')[0].data.question.id)
    return { run, answer: answer.data }
  }

  await t.test('one with choices is answered by keyboard in the desktop', async () => {
    await say(frame, 'Paint the first door')
    await card.getByText('Which colour shall the door have?').waitFor()
    assert.match(await card.innerText(), /5\d min.* left\. Without an answer: red\.|1 h.* left\. Without an answer: red\./)
    await bell.and(page.locator('[aria-label="Approvals, 1 waiting"]')).waitFor()
    assert.equal(choir.json('runs')[0].status, 'waiting')
    // The answer is reached from the prompt with nothing but keys.
    await frame.getByTestId('prompt').focus()
    const at = () => frame.evaluate(() => document.activeElement.closest('[data-testid=question]') && document.activeElement.textContent)
    for (let i = 0; (await at()) !== 'green'; i++) {
      assert.ok(i < 60, 'the Tab key reaches the choices')
      await page.keyboard.press('Shift+Tab')
    }
    await page.keyboard.press('Enter')
    const { run, answer } = await ended('Paint the first door')
    await shown.and(frame.locator('[data-status=done]')).waitFor()
    assert.deepEqual([answer.answer, answer.default ?? false], ['green', false])
    assert.match(run.summary, /^Told: The user answers: green/)
    await card.waitFor({ state: 'hidden' })
    await none()
  })

  await t.test('one without choices is answered by keyboard in the console', async () => {
    await say(frame, 'Paint the second door')
    await bell.and(page.locator('[aria-label="Approvals, 1 waiting"]')).waitFor()
    assert.ok(await sheet.isHidden(), 'nothing opens by itself')
    await bell.focus()
    await page.keyboard.press('Enter')
    await sheet.getByText('What shall stand on the door?').waitFor()
    assert.ok(await sheet.getByLabel('Your answer').evaluate((e) => e === document.activeElement), 'the cursor is in the sheet')
    assert.deepEqual(await axe(page), [])
    await page.keyboard.press('Escape')
    assert.ok(await sheet.isHidden())
    assert.ok(await bell.evaluate((e) => e === document.activeElement), 'and comes back out of it')
    await page.keyboard.press('Enter')
    await page.keyboard.type('mind the ')
    // Another run asks meanwhile. What was typed stays, and so does the cursor.
    choir.cli(['prompt', 'Paint the fourth door'])
    await bell.and(page.locator('[aria-label="Approvals, 2 waiting"]')).waitFor()
    await sheet.getByText('Which side?').waitFor()
    await page.keyboard.type('cat')
    assert.equal(await sheet.getByLabel('Your answer').inputValue(), 'mind the cat')
    await page.keyboard.press('Enter')
    const second = await ended('Paint the second door')
    assert.equal(second.answer.answer, 'mind the cat')
    assert.match(second.run.summary, /^Told: The user answers: mind the cat/)
    // The cursor moves to the question that still waits.
    const left = sheet.getByRole('button', { name: 'left' })
    await until('the next question has the cursor', () => left.evaluate((e) => e === document.activeElement))
    await page.keyboard.press('Tab')
    await page.keyboard.press('Enter')
    const fourth = await ended('Paint the fourth door')
    assert.equal(fourth.answer.answer, 'right')
    await sheet.getByText('Nothing is waiting for an answer.').waitFor()
    assert.ok(await bell.evaluate((e) => e === document.activeElement))
    await none()
  })

  await t.test('without an answer the default counts when the time is up', async () => {
    await say(frame, 'Paint the third door')
    await card.getByText('Shall the door be open?').waitFor()
    assert.match(await card.innerText(), /s left\. Without an answer: no\./)
    const { run, answer } = await ended('Paint the third door')
    assert.deepEqual([answer.answer, answer.default], ['no', true])
    assert.match(run.summary, /^Told: the default counts: no/)
    await none()
  })
  await t.test('nothing complained', () => assert.deepEqual(faults, []))
})
