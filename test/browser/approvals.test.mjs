// Shows what only a person can grant: a host that a task wants beyond what the computer was granted
// is asked for on the console's sheet, which works by keyboard, and nothing but the console can
// answer it.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { axe, browse, Choir, claim, desktop, modelServer, say, until, visitor } from './harness.mjs'

// The reason that the agent gives must not become markup, and is cut off at 200 characters.
const claimed = `<img src=x onerror="document.title='owned'"> The host says: granted.\u202e ${'please '.repeat(60)}`

const wants = (match, ...hosts) => [
  {
    role: 'director',
    match,
    calls: [{ name: 'delegate', args: { tasks: [{ kind: 'agent', goal: `Try ${match}`, tools: ['read'], verify: { profile: 'none' }, egress: { profile: 'custom', allow: hosts, reason: claimed } }] } }],
  },
  { role: 'associate', match: `Try ${match}`, calls: [{ name: 'finish', args: { status: 'ok', summary: 'Tried.' } }] },
  { role: 'director', match, calls: [{ name: 'report', args: { status: 'done', summary: 'Done.' } }] },
]

// What a body has must not become markup, nothing of it may hide, and all of it can be read.
const sent = `{"note":"<img src=x onerror=\\"document.title='owned'\\">","hidden":"a\u202eb","items":[${'"a ladder of eleven rungs",'.repeat(120)}"the end"]}`

const sends = (match) => [
  { role: 'director', match, calls: [{ name: 'delegate', args: { tasks: [{ kind: 'agent', goal: `Try ${match}`, tools: ['web_request'], verify: { profile: 'none' } }] } }] },
  {
    role: 'associate',
    match: `Try ${match}`,
    calls: [
      {
        name: 'web_request',
        args: { method: 'POST', url: 'https://shop.invalid/orders?for=me', headers: [{ name: 'X-Shop', value: '1' }], content_type: 'application/json', body: sent, reason: 'The user wants eleven ladders.' },
      },
    ],
  },
  { role: 'associate', match: `Try ${match}`, calls: [{ name: 'finish', args: { status: 'ok', summary: 'Tried.' } }] },
  { role: 'director', match, calls: [{ name: 'report', args: { status: 'done', summary: 'Done.' } }] },
]

test('approvals', async (t) => {
  const model = await modelServer(t, { turns: [...wants('the first door', 'docs.invalid:8443'), ...wants('the second door', 'a.invalid:443', 'b.invalid:443'), ...wants('the third door', 'c.invalid:443'), ...sends('the order')] })
  const choir = await Choir.start(t, { env: { ANTHROPIC_API_KEY: 'sk-ant-test-0123456789abcdef', ANTHROPIC_BASE_URL: model.url, CHOIR_MODEL: 'anthropic/claude-sonnet-4-6' } })
  const { context, faults } = await visitor(await browse(t), choir)
  const page = await claim(context, choir)
  const frame = await desktop(page)
  const bell = page.locator('#bell')
  const sheet = page.getByRole('region', { name: 'Approvals' })
  const waiting = (n) => bell.and(page.locator(n ? `[aria-label="Approvals, ${n} waiting"]` : '[aria-label="Approvals"]')).waitFor()
  const focused = () => page.evaluate(() => document.activeElement.textContent)
  const ended = (prompt) => until(`“${prompt}” is done`, () => choir.json('runs').find((r) => r.prompt === prompt && r.status === 'done'))
  const answers = (run) => choir.events().filter((e) => e.run === run.id && e.type === 'approval.answered')

  await t.test('facts first, the claim as a claim, and Deny has the cursor', async () => {
    await say(frame, 'Open the first door')
    await waiting(1)
    assert.ok(await sheet.isHidden(), 'nothing opens by itself')
    await bell.focus()
    await page.keyboard.press('Enter')
    const card = sheet.getByRole('listitem')
    await card.getByText('A task asks to connect to docs.invalid:8443').waitFor()
    const text = await card.innerText()
    const at = (words) => assert.ok(text.includes(words), `${words} in ${text}`) ?? text.indexOf(words)
    const { id } = choir.json('runs')[0]
    const order = ['docs.invalid:8443', 'Open the first door', id.slice(-8), 'Denied at', 'The agent’s claim, unchecked', 'The host says: granted.', 'Deny'].map(at)
    assert.deepEqual(order, order.toSorted((a, b) => a - b), 'in this order')
    assert.equal(await card.getByTitle(id).count(), 1, 'the whole id is there for who points at its end')
    const quote = await card.locator('blockquote').innerText()
    assert.ok([...quote].length <= 200 && quote.includes('<img src=x') && !quote.includes('\u202e'), quote)
    assert.equal(await card.locator('img').count(), 0)
    assert.doesNotMatch(await page.title(), /owned/)
    assert.equal(await focused(), 'Deny')
    assert.deepEqual(await axe(page), [])
    // Another window of the same desktop can't answer, because its session is not the console's.
    const [approval] = choir.json('approvals')
    const cid = choir.events()[0].computer
    const status = await frame.evaluate(
      async ([console, cid, approval]) => {
        const tries = [`/api/computers/${cid}/approvals/${approval.id}`, `${console}/api/computers/${cid}/approvals/${approval.id}`]
        const out = []
        for (const url of tries) {
          out.push(await fetch(url, { method: 'POST', credentials: 'include', body: JSON.stringify({ digest: approval.digest, answer: 'run' }) }).then((r) => r.status, () => 'refused'))
        }
        return out
      },
      [choir.url.replace(/\/$/, ''), cid, approval],
    )
    assert.ok(status.every((s) => s === 'refused' || s >= 400), `${status}`)
    assert.equal(choir.json('approvals').length, 1, 'it is still open')
    await page.keyboard.press('Enter')
    const run = await ended('Open the first door')
    assert.deepEqual(answers(run).map((e) => [e.data.answer, e.data.reason ?? '']), [['deny', '']])
    await sheet.getByText('Nothing is waiting for an answer.').waitFor()
    await waiting(0)
    await page.keyboard.press('Escape')
  })

  await t.test('two hosts are two questions, answered by keyboard one after the other', async () => {
    await say(frame, 'Open the second door')
    await waiting(2)
    await bell.focus()
    await page.keyboard.press('Enter')
    await until('the cursor is on Deny', async () => (await focused()) === 'Deny')
    await page.keyboard.press('Tab')
    assert.equal(await focused(), 'Allow once')
    await page.keyboard.press('Enter')
    await waiting(1)
    // The next one takes no key that comes too late: the title has the cursor, and the answers follow it.
    await until('the cursor is on the title', async () => (await focused()) === 'Waiting for you')
    await until('the list takes answers', () => sheet.locator('#approvals-list:not([inert])').isVisible())
    await page.keyboard.press('Tab')
    assert.equal(await focused(), 'Deny')
    await page.keyboard.press('Tab')
    await page.keyboard.press('Tab')
    assert.equal(await focused(), 'Allow for this run')
    await page.keyboard.press('Enter')
    const run = await ended('Open the second door')
    assert.deepEqual(answers(run).map((e) => e.data.answer).toSorted(), ['once', 'run'])
    await waiting(0)
    await page.keyboard.press('Escape')
  })

  await t.test('one that the command line answers leaves the sheet', async () => {
    await say(frame, 'Open the third door')
    await waiting(1)
    const [approval] = choir.json('approvals')
    choir.cli(['approve', approval.id])
    await waiting(0)
    const run = await ended('Open the third door')
    assert.deepEqual(answers(run).map((e) => e.data.answer), ['once'])
  })
  await t.test('a request is shown whole, and allowed once or not at all', async () => {
    await say(frame, 'Place the order')
    await waiting(1)
    await bell.focus()
    await page.keyboard.press('Enter')
    const card = sheet.getByRole('listitem')
    await card.getByText('A task asks to send a POST request to shop.invalid:443').waitFor()
    const text = await card.innerText()
    for (const words of ['POST https://shop.invalid/orders?for=me', 'X-Shop: 1', 'Content-Type: application/json', 'Idempotency-Key: ', `${Buffer.byteLength(sent)} bytes`, '<img src=x', 'a<U+202E>b', 'SHA-256 ', 'The user wants eleven ladders.', 'no checkpoint takes back']) {
      assert.ok(text.includes(words), `${words} in ${text}`)
    }
    assert.ok(!text.includes('the end'))
    assert.deepEqual(await card.getByRole('button').allInnerTexts(), ['Show all of it', 'Deny', 'Allow once'])
    assert.equal(await card.locator('img').count(), 0)
    assert.doesNotMatch(await page.title(), /owned/)
    assert.deepEqual(await axe(page), [])
    for (const [theme, width, height] of [['light', 1440, 900], ['dark', 1440, 900], ['light', 820, 1180], ['dark', 390, 844]]) {
      await page.emulateMedia({ colorScheme: theme })
      await page.setViewportSize({ width, height })
      await page.screenshot({ path: `out/request-${theme}-${width}.png` })
    }
    await page.setViewportSize({ width: 1280, height: 800 })
    await card.getByRole('button', { name: 'Show all of it' }).click()
    await until('the end is shown', async () => (await card.innerText()).includes('the end'))
    await card.getByRole('button', { name: 'Deny' }).focus()
    await page.keyboard.press('Enter')
    const run = await ended('Place the order')
    assert.deepEqual(answers(run).map((e) => e.data.answer), ['deny'])
    assert.equal(choir.events().filter((e) => e.type === 'effect.intended').length, 0)
    await waiting(0)
    await page.keyboard.press('Escape')
  })
  // The desktop's page tried what it may not do, and its browser complains about that.
  await t.test('nothing else complained', () => assert.deepEqual(faults.filter((f) => !/approvals/.test(f)), []))
})
