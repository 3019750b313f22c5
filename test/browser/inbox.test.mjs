// Shows that what any computer of the person's waits for is on the sheet, whichever one is shown: by computer, the shown one
// first, with all that an answer decides; and that it is answered there.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { browse, Choir, claim, desktop, gallery, modelServer, say, sizes, until, visitor } from './harness.mjs'

const asks = (match, question) => [
  { role: 'director', match, calls: [{ name: 'ask_user', args: question }] },
  { role: 'director', match, calls: [{ name: 'report', args: { status: 'done', summary: 'Done.' } }] },
]
const sends = (match) => [
  { role: 'director', match, calls: [{ name: 'delegate', args: { tasks: [{ kind: 'agent', goal: `Try ${match}`, tools: ['web_request'], verify: { profile: 'none' } }] } }] },
  {
    role: 'associate',
    match: `Try ${match}`,
    calls: [{ name: 'web_request', args: { method: 'POST', url: 'https://shop.invalid/orders', content_type: 'application/json', body: '{"what":"a ladder of eleven rungs"}', reason: 'The user wants a ladder.' } }],
  },
  { role: 'associate', match: `Try ${match}`, calls: [{ name: 'finish', args: { status: 'ok', summary: 'Tried.' } }] },
  { role: 'director', match, calls: [{ name: 'report', args: { status: 'done', summary: 'Done.' } }] },
]

test('the inbox of all computers', async (t) => {
  const model = await modelServer(t, {
    turns: [
      ...asks('Paint the door', { text: 'Which colour shall the door have?', choices: ['red', 'green'], default: 'red', deadline_s: 3600 }),
      ...sends('the order'),
      ...asks('Hang the picture', { text: 'On which wall?', choices: ['north', 'south'], deadline_s: 3600 }),
    ],
  })
  const choir = await Choir.start(t, { env: { ANTHROPIC_API_KEY: 'sk-ant-test-0123456789abcdef', ANTHROPIC_BASE_URL: model.url, CHOIR_MODEL: 'anthropic/claude-sonnet-4-6' } })
  const { context, faults } = await visitor(await browse(t), choir)
  const page = await claim(context, choir)
  let frame = await desktop(page)
  const studio = choir.events()[0].computer
  const attic = choir.json('computers', 'create', 'Attic').id
  const { one, clean } = gallery()
  const bell = page.locator('#bell')
  const sheet = page.getByRole('region', { name: 'Approvals' })
  const waiting = (n) => bell.and(page.locator(n ? `[aria-label="Approvals, ${n} waiting"]` : '[aria-label="Approvals"]')).waitFor()
  const card = (name) => sheet.getByRole('listitem').filter({ has: page.getByRole('heading', { name }) })
  const of = (name) => sheet.getByRole('region', { name, exact: true })
  const events = (type) => choir.cli(['events', '--computer', studio]).trim().split('\n').map((l) => JSON.parse(l)).filter((e) => e.type === type)
  const order = /A task asks to send a POST request to shop.invalid/

  await t.test('it is listed while another computer is shown, by computer, the shown one first', async () => {
    await say(frame, 'Paint the door')
    await waiting(1)
    await say(frame, 'Place the order')
    await waiting(2)
    await page.locator('#account').click()
    assert.equal(await sheet.isVisible(), false)
    await page.reload()
    await waiting(2)
    await page.locator('#account').click()
    await page.getByLabel('Computer').selectOption({ label: 'Attic' })
    await page.locator(`iframe[data-role=shown][data-computer="${attic}"]`).waitFor()
    frame = await desktop(page)
    await waiting(2)
    await say(frame, 'Hang the picture')
    await waiting(3)
    await bell.focus()
    await page.keyboard.press('Enter')
    await sheet.waitFor()
    assert.deepEqual(await sheet.locator('.of').allInnerTexts(), ['Attic', 'Studio'])
    assert.equal(await of('Attic').getByRole('listitem').count(), 1)
    assert.equal(await of('Studio').getByRole('listitem').count(), 2)
    // All that an answer decides is there, and whose it is.
    const text = await card(order).innerText()
    for (const words of ['Studio', 'Place the order', 'POST https://shop.invalid/orders', 'a ladder of eleven rungs', 'The user wants a ladder.']) assert.ok(text.includes(words), `${words} in ${text}`)
    await page.keyboard.press('Escape')
  })

  await t.test('its pictures', async () => {
    for (const theme of ['night', 'day']) {
      await say(frame, `/theme ${theme}`)
      await frame.locator(`html[data-scheme=${theme === 'night' ? 'dark' : 'light'}]`).waitFor()
      await page.emulateMedia({ colorScheme: theme === 'night' ? 'dark' : 'light' })
      for (const [width, height] of sizes) {
        await page.setViewportSize({ width, height })
        await bell.click()
        await card(order).waitFor()
        await one(page, frame, `${width}-${theme}-inbox-all`)
        await page.keyboard.press('Escape')
      }
    }
    await page.setViewportSize({ width: 1440, height: 900 })
    clean(t)
  })

  await t.test('an approval and a question of another computer are answered from here', async () => {
    await bell.focus()
    await page.keyboard.press('Enter')
    await card(order).getByRole('button', { name: 'Deny' }).focus()
    await page.keyboard.press('Enter')
    await until('it is denied', () => events('approval.answered').length === 1)
    assert.deepEqual(events('approval.answered').map((e) => [e.data.answer, e.actor.split(':')[0]]), [['deny', 'person']])
    await waiting(2)
    await until('the list takes answers', () => page.locator('#approvals-list:not([inert])').isVisible())
    await of('Studio').getByRole('button', { name: 'green' }).focus()
    await page.keyboard.press('Enter')
    await until('it is answered', () => events('question.answered').length === 1)
    assert.equal(events('question.answered')[0].data.answer, 'green')
    await waiting(1)
    assert.equal(await sheet.locator('.of:visible').count(), 0, 'of one computer nothing is said')
    assert.equal(choir.json('computers').length, 2)
    await page.locator(`iframe[data-role=shown][data-computer="${attic}"]`).waitFor()
  })

  await t.test('one that somebody else has answered meanwhile is told, and leaves', async () => {
    await page.keyboard.press('Escape')
    await page.locator('#account').click()
    await page.getByLabel('Computer').selectOption({ label: 'Studio' })
    await page.locator(`iframe[data-role=shown][data-computer="${studio}"]`).waitFor()
    await waiting(1)
    await page.keyboard.press('Escape')
    await bell.focus()
    await page.keyboard.press('Enter')
    const run = choir.json('runs', '--computer', attic).find((r) => r.prompt === 'Hang the picture')
    // The list is asked for every ten seconds: this answer comes before the next time, or after it.
    choir.cli(['answer', run.id, 'north', '--computer', attic])
    await waiting(0)
    await sheet.getByText('Nothing is waiting for an answer.').waitFor()
  })

  await t.test('nothing else complained', () => assert.deepEqual(faults, []))
})
