// Shows what only a person can decide: the Director's question, how it is answered by keyboard in
// the desktop and in the console, and what happens when nobody answers.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { axe, browse, Choir, claim, desktop, modelServer, say, sizes, until, visitor } from './harness.mjs'

// What a model asks could look like the console's own words, and turn those around it.
const forged = 'ChoirOS: your vault is locked. Type your ANTHROPIC_API_KEY here to go on. \u202eyek\u202c'

const sends = (match) => [
  { role: 'director', match, calls: [{ name: 'delegate', args: { tasks: [{ kind: 'agent', goal: `Try ${match}`, tools: ['web_request'], verify: { profile: 'none' } }] } }] },
  { role: 'associate', match: `Try ${match}`, calls: [{ name: 'web_request', args: { method: 'POST', url: 'https://shop.invalid/orders', content_type: 'text/plain', body: 'a' } }] },
  { role: 'associate', match: `Try ${match}`, calls: [{ name: 'finish', args: { status: 'ok', summary: 'Tried.' } }] },
  { role: 'director', match, calls: [{ name: 'report', args: { status: 'done', summary: 'Done.' } }] },
]

// A run that asks once and reports the answer, which is the last one in what the model is told: earlier runs are told of, too.
const asks = (match, question) => [
  { role: 'director', match, calls: [{ name: 'ask_user', args: question }] },
  { role: 'director', match, capture: { told: '(?s).*(The user answers: [a-z ]+|the default counts: [a-z ]+)' }, calls: [{ name: 'report', args: { status: 'done', summary: 'Told: {{told}}' } }] },
]

test('questions', async (t) => {
  const model = await modelServer(t, {
    turns: [
      ...sends('the order'),
      ...asks('Paint the fifth door', { text: 'What shall stand there?', deadline_s: 3600 }),
      ...asks('Paint the sixth door', { text: 'Up or down?', choices: ['up', 'down'], deadline_s: 3600 }),
      ...asks('Tidy up', { text: 'Shall I delete all of the notes?', choices: ['Yes, delete all of them', 'No'], deadline_s: 3600 }),
      ...asks('Say hello', { text: forged, deadline_s: 3600 }),
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
    // The cursor moves to the title, before the question that still waits and takes no answer for a moment.
    await until('the title has the cursor', () => sheet.getByRole('heading', { name: 'Waiting for you' }).evaluate((e) => e === document.activeElement))
    await until('the list takes answers', () => sheet.locator('#approvals-list:not([inert])').isVisible())
    await page.keyboard.press('Tab')
    assert.ok(await sheet.getByRole('button', { name: 'left' }).evaluate((e) => e === document.activeElement))
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

  await t.test('a model’s words are told from the console’s, and nothing in them hides', async () => {
    await say(frame, 'Say hello')
    await bell.and(page.locator('[aria-label="Approvals, 1 waiting"]')).waitFor()
    await bell.click()
    const one = sheet.getByRole('listitem')
    const { id } = choir.json('runs')[0]
    const text = await one.innerText()
    const order = [`The agent of run ${id.slice(-8)} asks you`, 'You said', 'Say hello', 'Without an answer', 'The agent’s words, unchecked', 'ChoirOS: your vault is locked.', 'The agent and its model read the answer. ChoirOS asks for no key and no password here.', 'Answer'].map((words) => assert.ok(text.includes(words), `${words} in ${text}`) ?? text.lastIndexOf(words))
    assert.deepEqual(order, order.toSorted((a, b) => a - b), text)
    assert.ok((await one.locator('blockquote').innerText()).includes('<U+202E>yek<U+202C>'))
    assert.equal(await sheet.locator('input[type=password]').count(), 0)
    for (const theme of ['light', 'dark']) {
      await page.emulateMedia({ colorScheme: theme })
      for (const [width, height] of sizes) {
        await page.setViewportSize({ width, height })
        await page.screenshot({ path: `out/question-${theme}-${width}.png` })
        assert.deepEqual(await axe(page), [])
      }
    }
    await page.setViewportSize({ width: 1440, height: 900 })
    await page.keyboard.press('Escape')
    choir.cli(['run', 'cancel', id])
    await none()
  })

  await t.test('a key that is held answers one thing, and no click comes too early for the next', async () => {
    await say(frame, 'Make the order')
    await bell.and(page.locator('[aria-label="Approvals, 1 waiting"]')).waitFor()
    await say(frame, 'Tidy up')
    await bell.and(page.locator('[aria-label="Approvals, 2 waiting"]')).waitFor()
    const answers = () => choir.events().filter((e) => ['approval.answered', 'question.answered'].includes(e.type) && e.sequence > began).map((e) => e.data.answer)
    const began = choir.events().at(-1).sequence
    await bell.focus()
    await page.keyboard.down('Enter') // opens it, and is held as a keyboard does
    await sheet.getByRole('button', { name: 'Deny' }).and(page.locator(':focus')).waitFor()
    for (let i = 0; i < 5; i++) await page.keyboard.down('Enter')
    assert.ok(await sheet.isVisible())
    await page.keyboard.up('Enter')
    assert.deepEqual(answers(), [], 'what opened it does not answer')
    // The page itself says when the list of answers changed and when it took one again.
    await page.evaluate(() => {
      const list = document.getElementById('approvals-list')
      window.seen = []
      const look = () => window.seen.push({ at: performance.now(), cards: list.children.length, inert: list.inert })
      new MutationObserver(look).observe(list, { childList: true, attributeFilter: ['inert'] })
    })
    await page.keyboard.down('Enter')
    const last = () => page.evaluate(() => window.seen.at(-1) ?? {})
    await until('the list takes answers again', async () => {
      await page.keyboard.down('Enter')
      const { cards, inert } = await last()
      return cards === 1 && inert === false
    })
    for (let i = 0; i < 5; i++) await page.keyboard.down('Enter')
    await page.keyboard.up('Enter')
    const seen = await page.evaluate(() => window.seen)
    const [gone, free] = [seen.find((s) => s.cards === 1), seen.findLast((s) => !s.inert)]
    assert.ok(gone.inert && free.at - gone.at >= 1000, JSON.stringify(seen))
    assert.equal(await page.evaluate(() => document.activeElement.id), 'approvals-title', 'no answer has the cursor')
    await page.keyboard.press('Enter')
    assert.deepEqual(answers(), ['deny'])
    await sheet.getByRole('button', { name: 'No', exact: true }).click()
    await until('it is answered', () => answers().length === 2)
    assert.deepEqual(answers(), ['deny', 'No'])
    await none()
    await page.keyboard.press('Escape')
  })

  await t.test('a card that moved takes no click at once, and who types goes on', async () => {
    choir.cli(['prompt', 'Paint the sixth door'])
    await bell.and(page.locator('[aria-label="Approvals, 1 waiting"]')).waitFor()
    choir.cli(['prompt', 'Paint the fifth door'])
    await bell.and(page.locator('[aria-label="Approvals, 2 waiting"]')).waitFor()
    await bell.click()
    await sheet.getByLabel('Your answer').fill('mind')
    await page.evaluate(() => {
      window.moves = []
      const card = document.querySelector('#approvals-list li:last-child')
      const look = () => window.moves.push({ at: performance.now(), takes: getComputedStyle(card.querySelector('button')).pointerEvents !== 'none' })
      new MutationObserver(look).observe(card, { attributeFilter: ['data-moved'] })
    })
    choir.cli(['answer', choir.json('runs').find((r) => r.prompt === 'Paint the sixth door').id, 'up'])
    await bell.and(page.locator('[aria-label="Approvals, 1 waiting"]')).waitFor()
    await page.keyboard.type(' the dog')
    await until('it takes clicks', () => page.evaluate(() => window.moves.length === 2))
    const [moved, free] = await page.evaluate(() => window.moves)
    assert.ok(!moved.takes && free.takes && free.at - moved.at >= 999, JSON.stringify([moved, free]))
    assert.equal(await sheet.getByLabel('Your answer').inputValue(), 'mind the dog')
    await sheet.getByRole('button', { name: 'Answer' }).click()
    await none()
    await page.keyboard.press('Escape')
  })
  await t.test('nothing complained', () => assert.deepEqual(faults, []))
})
