// Shows what a run changed outside: its window tells done, failed and unknown apart; what nobody knows waits on the console,
// for whichever computer is shown, and only there somebody says what they found; and a run undoes it outside.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { browse, Choir, claim, desktop, gallery, modelServer, say, sizes, until, visitor } from './harness.mjs'

// A shop that takes an order, refuses one, and ends in the middle of one.
const shop = `
import * as readline from 'node:readline'
const send = (m) => process.stdout.write(JSON.stringify({ jsonrpc: '2.0', ...m }) + '\\n')
const text = (t, isError = false) => ({ content: [{ type: 'text', text: t }], isError })
const call = ({ what }) => {
  if (what === 'a ladder') process.exit(3)
  return what === 'the moon' ? text('there is no such thing here', true) : text('ordered as number 4711: ' + what)
}
for await (const line of readline.createInterface({ input: process.stdin })) {
  const m = JSON.parse(line)
  if (m.id === undefined) continue
  if (m.method === 'initialize') send({ id: m.id, result: { protocolVersion: '2025-06-18', capabilities: { tools: {} }, serverInfo: { name: 'shop', version: '1' } } })
  else if (m.method === 'tools/list') send({ id: m.id, result: { tools: [{ name: 'order', description: 'Orders something.', inputSchema: { type: 'object', properties: { what: { type: 'string' }, idempotency_key: { type: 'string' } }, required: ['what'] } }] } })
  else if (m.method === 'tools/call') send({ id: m.id, result: call(m.params.arguments) })
  else send({ id: m.id, error: { code: -32601, message: 'no' } })
}
`
const order = 'mcp__shop__order'
const orders = (match, ...things) => [
  { role: 'director', match, calls: [{ name: 'delegate', args: { tasks: [{ kind: 'agent', goal: `At the shop: ${match}`, tools: [order], verify: { profile: 'none' } }] } }] },
  ...things.map((what) => ({ role: 'associate', match: `At the shop: ${match}`, calls: [{ name: order, args: { what } }] })),
  { role: 'associate', match: `At the shop: ${match}`, calls: [{ name: 'finish', args: { status: 'ok', summary: 'I tried all of it.' } }] },
  { role: 'director', match, calls: [{ name: 'report', args: { status: 'done', summary: 'A lamp is ordered. The moon was refused. Whether the ladder is ordered is not known.' } }] },
]

const worth = 'one hundred ladders'

test('what was sent is on the card as it was, though the key is the same', async (t) => {
  const match = 'Order at the shop'
  const model = await modelServer(t, {
    turns: [
      { role: 'director', match, calls: [{ name: 'delegate', args: { tasks: [{ kind: 'agent', goal: `Do: ${match}`, tools: [order], verify: { profile: 'none' } }] } }] },
      { role: 'associate', match: `Do: ${match}`, calls: [{ name: order, args: { what: worth, idempotency_key: worth } }] },
      { role: 'associate', match: `Do: ${match}`, calls: [{ name: 'finish', args: { status: 'ok', summary: 'Tried.' } }] },
      { role: 'director', match, calls: [{ name: 'report', args: { status: 'done', summary: 'Done.' } }] },
    ],
  })
  const choir = await Choir.start(t, { env: { ANTHROPIC_API_KEY: 'sk-ant-test-0123456789abcdef', ANTHROPIC_BASE_URL: model.url, CHOIR_MODEL: 'anthropic/claude-sonnet-4-6' } })
  const { context } = await visitor(await browse(t), choir)
  const page = await claim(context, choir)
  const frame = await desktop(page)
  choir.put('workspace/shop.mjs', shop.replace("'a ladder'", `'${worth}'`))
  choir.cli(['mcp', 'add', 'shop', '--files', '--', 'node', '/computer/workspace/shop.mjs'])
  choir.cli(['mcp', 'approve', 'shop', '--yes'])
  await say(frame, match)
  await page.locator('#bell[aria-label="Approvals, 1 waiting"]').click()
  const row = page.getByRole('region', { name: 'Approvals' }).getByRole('listitem').locator('dl > div').filter({ hasText: /^Sent/ })
  assert.deepEqual(JSON.parse((await row.innerText()).replace(/^Sent\s*/, '')), { what: worth, idempotency_key: worth })
})

test('what happened outside', async (t) => {
  const model = await modelServer(t, {
    turns: [
      { role: 'director', match: 'Undo outside, if it can be undone there', calls: [{ name: 'report', args: { status: 'done', summary: 'The ladder is cancelled.' } }] },
      ...orders('Order a lamp, the moon and a ladder', 'a lamp', 'the moon', 'a ladder'),
      ...orders('Order one more ladder', 'a ladder'),
    ],
  })
  const choir = await Choir.start(t, { env: { ANTHROPIC_API_KEY: 'sk-ant-test-0123456789abcdef', ANTHROPIC_BASE_URL: model.url, CHOIR_MODEL: 'anthropic/claude-sonnet-4-6', CHOIR_RUNTIME_SLEEP_S: '15' } })
  const { context, faults } = await visitor(await browse(t), choir)
  const page = await claim(context, choir)
  let frame = await desktop(page)
  choir.put('workspace/shop.mjs', shop)
  choir.cli(['mcp', 'add', 'shop', '--files', '--', 'node', '/computer/workspace/shop.mjs'])
  choir.cli(['mcp', 'approve', 'shop', '--yes'])
  const { one, clean } = gallery()
  const bell = page.locator('#bell')
  const sheet = page.getByRole('region', { name: 'Approvals' })
  const waiting = (n) => bell.and(page.locator(n ? `[aria-label="Approvals, ${n} waiting"]` : '[aria-label="Approvals"]')).waitFor()
  const run = () => frame.locator('[data-testid=window][data-active=true] [data-testid=run]')
  const effect = (what) => run().getByTestId('effect').filter({ hasText: what })
  const studio = choir.events()[0].computer
  const events = () => choir.cli(['events', '--computer', studio]).trim().split('\n').map((l) => JSON.parse(l))
  const unknown = () => choir.json('effects', '--outcome', 'unknown', '--computer', studio)

  await t.test('the run’s window tells done, failed and unknown apart', async () => {
    await say(frame, 'Order a lamp, the moon and a ladder')
    await run().and(frame.locator('[data-status=done]')).waitFor()
    for (const [what, outcome] of [['a lamp', 'done'], ['the moon', 'failed'], ['a ladder', 'unknown']]) {
      await effect(what).and(frame.locator(`[data-outcome=${outcome}]`)).waitFor()
      assert.match(await effect(what).innerText(), new RegExp(`\\b${outcome}\\b`), 'a word, and not colour alone')
    }
    await run().getByText('1 call of 3 may have happened; nobody knows yet.').waitFor()
    assert.equal(await effect('a lamp').getByText('This may have happened').count(), 0)
    await effect('a ladder').getByText('This may have happened. Look there, then say what you found.').waitFor()
    // By keyboard: what was sent and answered, whole.
    await effect('a lamp').locator('button[aria-expanded]').first().focus()
    await page.keyboard.press('Enter')
    await effect('a lamp').getByRole('button', { name: 'Show all of it' }).click()
    await effect('a lamp').getByText('ordered as number 4711: a lamp').waitFor()
    assert.match(await effect('a lamp').innerText(), /"what":"a lamp"/)
    await effect('a lamp').locator('button[aria-expanded]').first().click()
  })

  await t.test('its pictures', async () => {
    for (const theme of ['night', 'day']) {
      await say(frame, `/theme ${theme}`)
      await frame.locator(`html[data-scheme=${theme === 'night' ? 'dark' : 'light'}]`).waitFor()
      await page.emulateMedia({ colorScheme: theme === 'night' ? 'dark' : 'light' })
      for (const [width, height] of sizes) {
        await page.setViewportSize({ width, height })
        await one(page, frame, `${width}-${theme}-outside`)
        if (theme === 'day') {
          await effect('a lamp').locator('button[aria-expanded]').first().click()
          await effect('a lamp').getByRole('button', { name: 'Have it undone there…' }).click()
          await one(page, frame, `${width}-${theme}-outside-whole`)
          await effect('a lamp').locator('button[aria-expanded]').first().click()
        }
        await bell.click()
        await sheet.getByRole('heading', { name: 'This may have happened: shop order' }).waitFor()
        await one(page, frame, `${width}-${theme}-inbox`)
        await page.keyboard.press('Escape')
      }
    }
    await page.setViewportSize({ width: 1440, height: 900 })
    clean(t)
  })

  await t.test('the desktop leads to the console, where no click that was meant for the page answers', async () => {
    await waiting(1)
    await page.evaluate(() => {
      const list = document.getElementById('approvals-list')
      window.inert = []
      new MutationObserver(() => window.inert.push(list.inert)).observe(list, { attributeFilter: ['inert'] })
    })
    // What nobody asked for is not shown: a page that nobody used lately is not heard. (To evaluate counts as use, for some seconds.)
    await frame.evaluate(
      (origin) =>
        new Promise((heard) => {
          addEventListener('message', ({ data: { type } }) => {
            if (type === 'choir.recalled') heard()
            if (type !== 'choir.ping' || navigator.userActivation.isActive) return
            window.parent.postMessage({ type: 'choir.open', place: 'inbox', id: '' }, origin)
            window.parent.postMessage({ type: 'choir.recall' }, origin)
          })
        }),
      new URL(choir.url).origin,
    )
    assert.ok(await sheet.isHidden())
    // Use of the console is no use of the page, which asks all the time: a menu stays, and the bell stands out at most.
    await frame.evaluate((origin) => (window.asks = setInterval(() => window.parent.postMessage({ type: 'choir.open', place: 'inbox', id: '' }, origin), 20)), new URL(choir.url).origin)
    await sheet.waitFor() // to evaluate counted as use of the page
    await page.evaluate(() => {
      window.opened = []
      const [sheet, menu, bell] = ['approvals', 'account-menu', 'bell'].map((id) => document.getElementById(id))
      new MutationObserver(() => window.opened.push(sheet.hidden ? 'sheet closed' : 'sheet opened')).observe(sheet, { attributeFilter: ['hidden'] })
      new MutationObserver(() => window.opened.push(menu.hidden ? 'menu closed' : 'menu opened')).observe(menu, { attributeFilter: ['hidden'] })
      new MutationObserver(() => 'asked' in bell.dataset && window.opened.push('bell')).observe(bell, { attributeFilter: ['data-asked'] })
    })
    await page.locator('#account').click()
    await page.locator('#name').click() // closes it: now the page's asking is heard
    await bell.and(page.locator('[data-asked]')).waitFor()
    assert.deepEqual(await page.evaluate(() => window.opened.filter((o) => o !== 'bell' && o !== 'sheet closed')), ['menu opened', 'menu closed'])
    await frame.evaluate(() => clearInterval(window.asks))
    // Nobody uses anything for as long as a browser counts that as use.
    await frame.evaluate(() => new Promise((quiet) => addEventListener('message', () => !navigator.userActivation.isActive && quiet())))
    await until('the bell is as it was', async () => (await page.locator('#bell[data-asked]').count()) === 0)
    await until('nothing of before is held', () => page.evaluate(() => !document.getElementById('approvals-list').inert))
    await page.evaluate(() => (window.inert = []))
    await frame.evaluate(() => new Promise((quiet) => addEventListener('message', () => !navigator.userActivation.isActive && quiet())))
    await effect('a ladder').getByRole('button', { name: 'Say it on the console' }).click()
    await sheet.getByRole('heading', { name: 'Waiting for you' }).and(page.locator(':focus')).waitFor()
    await until('the list takes answers', () => page.evaluate(() => window.inert.at(-1) === false))
    assert.deepEqual(await page.evaluate(() => window.inert), [true, false], 'not at once')
    assert.equal(unknown().length, 1)
    const card = sheet.getByRole('listitem')
    const text = await card.innerText()
    for (const words of ['Order a lamp, the moon and a ladder', 'At the shop: Order a lamp', '"what":"a ladder"', 'When', 'Key']) assert.ok(text.includes(words), `${words} in ${text}`)
    await card.getByText('All of it').click()
    await card.locator('pre').getByText('a ladder').waitFor()
    await page.keyboard.press('Escape')
    // And that page can't say it.
    const status = await frame.evaluate(
      async ([console, cid, id]) => fetch(`${console}/api/computers/${cid}/effects/${id}/resolve`, { method: 'POST', credentials: 'include', body: '{"found":"not_done"}' }).then((r) => r.status, () => 'refused'),
      [new URL(choir.url).origin, studio, unknown()[0].id],
    )
    assert.ok(status === 'refused' || status >= 400, `${status}`)
    assert.equal(unknown().length, 1)
  })

  await t.test('a page that asks again once it was closed has the sheet take nothing for a whole second again', async () => {
    await page.evaluate(() => {
      window.seen = []
      const [sheet, list] = ['approvals', 'approvals-list'].map((id) => document.getElementById(id))
      const look = () => window.seen.push({ at: performance.now(), shown: !sheet.hidden, inert: list.inert })
      new MutationObserver(look).observe(sheet, { attributeFilter: ['hidden'] })
      new MutationObserver(look).observe(list, { attributeFilter: ['inert'] })
    })
    // It asks all the time from the first click on it.
    await frame.evaluate((origin) => addEventListener('pointerdown', () => (window.asks = setInterval(() => window.parent.postMessage({ type: 'choir.open', place: 'inbox', id: '' }, origin), 20)), { once: true, capture: true }), new URL(choir.url).origin)
    await frame.getByTestId('prompt').click()
    await sheet.waitFor()
    await page.keyboard.press('Escape') // which counts as no use
    const again = await until('it is shown again, and takes answers', () =>
      page.evaluate(() => {
        const openings = window.seen.filter((s, n, all) => s.shown && !all[n - 1]?.shown)
        const free = openings[1] && window.seen.find((s) => s.at >= openings[1].at && s.shown && !s.inert)
        return free && { shown: openings[1].at, free: free.at }
      }),
    )
    assert.ok(again.free - again.shown >= 1000, JSON.stringify(again))
    await frame.evaluate(() => clearInterval(window.asks))
    await page.keyboard.press('Escape')
  })

  await t.test('it waits while another computer is shown and its own sleeps, and after a reload', async () => {
    const attic = choir.json('computers', 'create', 'Attic')
    await page.reload()
    await waiting(1)
    await page.locator('#account').click()
    await page.getByLabel('Computer').selectOption({ label: 'Attic' })
    await page.locator('#name').getByText('Attic').waitFor()
    await page.keyboard.press('Escape')
    await until('its own sleeps', () => choir.json('computers').find((c) => c.id === studio).state === 'asleep')
    await page.reload()
    await page.locator(`iframe[data-role=shown][data-computer="${attic.id}"][data-mode=live]`).waitFor()
    await waiting(1)
    await bell.focus()
    await page.keyboard.press('Enter')
    const card = sheet.getByRole('listitem')
    await card.getByText('Studio').waitFor()
    assert.equal(await card.count(), 1, 'once')
    assert.equal(choir.json('computers').find((c) => c.id === studio).state, 'asleep', 'to be looked at it need not wake')
    await card.getByRole('button', { name: 'Open the run' }).click()
    await page.locator(`iframe[data-role=shown][data-computer="${studio}"]`).waitFor()
    frame = await desktop(page)
    await effect('a ladder').and(frame.locator('[data-outcome=unknown]')).waitFor()
    await waiting(1)
  })

  await t.test('what somebody found is said once, by keyboard, and a run undoes it there', async () => {
    await bell.focus()
    await page.keyboard.press('Enter')
    const note = sheet.getByLabel('What you found')
    await until('the cursor is in the note', () => note.evaluate((e) => e === document.activeElement))
    await page.keyboard.type('it is in their list')
    await page.keyboard.press('Enter')
    assert.equal(unknown().length, 1, 'Enter in the note says nothing')
    for (const name of ['Open the run', 'It did not happen', 'It happened']) {
      await page.keyboard.press('Tab')
      assert.equal(await page.evaluate(() => document.activeElement.textContent), name)
    }
    await page.keyboard.press('Enter')
    await waiting(0)
    await effect('a ladder').getByText('Somebody looked: it happened. “it is in their list”').waitFor()
    await one(page, frame, '1440-day-offer')
    clean(t)
    const said = events().filter((e) => e.type === 'effect.resolved')
    assert.deepEqual(said.map((e) => [e.data.found, e.data.note, e.actor.split(':')[0]]), [['done', 'it is in their list', 'person']])
    await sheet.getByRole('button', { name: 'Have it undone there' }).click()
    await run().getByText('The ladder is cancelled.').first().waitFor()
    const undo = events().findLast((e) => e.type === 'prompt.submitted')
    assert.equal(undo.data.continues, said[0].run)
    assert.ok(undo.data.text.includes(said[0].data.effect) && !undo.data.text.includes('ladder'), undo.data.text)
  })

  await t.test('one that the command line answers leaves the sheet', async () => {
    await say(frame, 'Order one more ladder')
    await waiting(1)
    choir.cli(['effects', 'resolve', unknown()[0].id, '--not-done', '--computer', studio])
    await waiting(0)
    await run().getByText('Somebody looked: it did not happen.').waitFor()
  })
  await t.test('nothing else complained', () => assert.deepEqual(faults.filter((f) => !/resolve/.test(f)), []))
})
