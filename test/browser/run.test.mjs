// Shows what a run's window says of a run: its user's words first, what is being done, what was done in sentences, what it waits for and where
// that is answered, what its user said, what was not allowed, how long it goes on, and what it goes on from; where it opens, and which toasts
// it makes needless. Pictures are kept.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { browse, Choir, claim, desktop, gallery, modelServer, say, sizes, until, visitor } from './harness.mjs'

const report = (match, summary) => ({ role: 'director', match, calls: [{ name: 'report', args: { status: 'done', summary } }] })
const delegate = (match, goal, tools) => ({ role: 'director', match, usage: { in: 900, out: 40 }, calls: [{ name: 'delegate', args: { tasks: [{ kind: 'agent', goal, tools, verify: { profile: 'none' } }] } }] })
const order = { method: 'POST', url: 'https://shop.invalid/orders', content_type: 'application/json', body: '{"item":"a ladder"}', reason: 'The user wants a ladder.' }
const choices = ['red like the neighbours’ door', 'green', 'blue, as it was before the renovation in 1998, if that paint can still be had']

const env = (model) => ({ ANTHROPIC_API_KEY: 'sk-ant-test-0123456789abcdef', ANTHROPIC_BASE_URL: model.url, CHOIR_MODEL: 'anthropic/claude-sonnet-4-6' })

/** Takes pictures in three sizes and both themes; the page is then as it was. */
const picturesOf = ({ one }, choir, page, frame) => async (name) => {
  const before = page.viewportSize()
  for (const theme of ['night', 'day']) {
    const scheme = theme === 'night' ? 'dark' : 'light'
    await say(frame, `/theme ${theme}`)
    await frame.locator(`html[data-scheme=${scheme}]`).waitFor()
    await until('the theme is written', () => (choir.events().findLast((e) => e.type === 'theme.changed')?.data.theme.scheme ?? 'dark') === scheme)
    await frame.evaluate(() => document.querySelectorAll('[data-testid=toast] [aria-label=Dismiss]').forEach((b) => b.click())) // what is said of the theme
    for (const [width, height] of sizes) {
      await page.setViewportSize({ width, height })
      await one(page, frame, `${width}-${theme}-run-${name}`)
    }
    await page.setViewportSize(before)
  }
}

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
  const choir = await Choir.start(t, { env: env(model) })
  const { context, faults } = await visitor(await browse(t), choir, { viewport: { width: 1280, height: 800 } })
  const page = await claim(context, choir)
  const frame = await desktop(page)
  const win = frame.locator('[data-testid=window][data-active=true]')
  const run = win.getByTestId('run')
  const done = () => win.locator('[data-testid=run][data-status=done]').waitFor()
  const g = gallery()
  const pictures = picturesOf(g, choir, page, frame)

  await t.test('its time is what a clock says, and what was said to it stays', async () => {
    await say(frame, 'Count slowly')
    await win.getByTestId('told').waitFor()
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
    await win.getByText('A request to shop.invalid was denied').waitFor()
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
    await win.getByText('A request to shop.invalid was denied').waitFor()
  })

  await t.test('a question fits on a phone, and stays with its answer', async () => {
    await say(frame, 'Paint the door')
    await win.getByTestId('question').waitFor()
    assert.equal(await run.locator('[data-mark=active]').count(), 0, 'nothing turns while it waits')
    await pictures('question')
    await page.setViewportSize({ width: 390, height: 844 })
    const wide = () => win.getByTestId('question').evaluate((e) => [...e.querySelectorAll('p, button')].filter((x) => x.getBoundingClientRect().right > innerWidth).map((x) => x.textContent))
    await until(async () => `all of it is on the screen: ${await wide()}`, async () => (await wide()).length === 0)
    await page.setViewportSize({ width: 1280, height: 800 })
    await win.getByTestId('question').getByRole('button', { name: choices[0] }).click()
    await done()
    assert.match(await win.getByTestId('said').innerText(), /Which colour[\s\S]*red like/)
    await pictures('said')
  })
  g.clean(t)
  assert.deepEqual(faults, [])
})

const sum = {
  'package.json': '{ "name": "sum", "type": "module", "scripts": { "test": "node --test" } }\n',
  'sum.js': 'export const add = (a, b) => a - b\n',
  'sum.test.js': "import assert from 'node:assert'\nimport { test } from 'node:test'\nimport { add } from './sum.js'\n\nfor (const n of [1, 2, 3]) test(`adds ${n}`, () => assert.equal(add(n, n), 2 * n))\n",
}
const asked = `Mend the sum in workspace/sum: it takes away where it should add.\n\n${'Its tests say what it should do, and they stay as they are. '.repeat(12)}`.trim()
const goal = 'Mend add in workspace/sum/sum.js, as the Director wants it'
const plan = (...of) => ({ name: 'revise_plan', args: { objective: 'The sum adds, and its tests pass', plan: of.map((status, i) => ({ text: ['Find where it takes away', 'Mend it'][i], status })) } })

test('what a run does, in words', async (t) => {
  const model = await modelServer(t, {
    turns: [
      { role: 'director', match: 'Mend the sum', calls: [plan('done', 'active'), { name: 'delegate', args: { tasks: [{ kind: 'agent', goal, acceptance: ['npm test passes'], tools: ['read', 'edit', 'bash'], verify: { profile: 'standard' } }] } }] },
      { role: 'associate', match: goal, calls: [{ name: 'bash', args: { command: 'cd workspace/sum && npm test >/dev/null' } }] },
      { role: 'associate', match: goal, hold: 'look', calls: [{ name: 'read', args: { path: 'workspace/sum/sum.js' } }] },
      { role: 'associate', match: goal, calls: [{ name: 'edit', args: { path: 'workspace/sum/sum.js', old: 'a - b', new: 'a + b' } }] },
      { role: 'associate', match: goal, calls: [{ name: 'finish', args: { status: 'ok', summary: 'It adds.' } }] },
      { role: 'director', match: 'Mend the sum', hold: 'report', calls: [plan('done', 'done'), { name: 'report', args: { status: 'done', summary: 'The sum adds now. I changed one sign in `workspace/sum/sum.js`; its three tests pass.' } }] },
      { role: 'director', match: 'the roof', calls: [{ name: 'report', args: { status: 'failed', summary: 'There is no roof in this computer, so nothing was mended.' } }] },
    ],
  })
  const choir = await Choir.start(t, { env: env(model) })
  for (const [name, text] of Object.entries(sum)) choir.put(`workspace/sum/${name}`, text)
  choir.cli(['checkpoint', '-m', 'The sum'])
  const { context, faults } = await visitor(await browse(t), choir)
  const page = await claim(context, choir)
  const frame = await desktop(page)
  const win = frame.locator('[data-testid=window][data-active=true]')
  const g = gallery()
  const pictures = picturesOf(g, choir, page, frame)
  const box = (l) => l.evaluate((e) => {
    const { left, right, top, bottom } = e.getBoundingClientRect()
    return { left, right, top, bottom }
  })

  await t.test('it opens beside what is read, opaque at once, with the words of its user', async () => {
    const read = frame.locator('[data-testid=window][data-app=welcome]')
    await read.waitFor()
    await page.emulateMedia({ reducedMotion: 'no-preference' })
    // What is animated is asked for as it begins: the opening may be over before anybody else asks.
    await frame.evaluate(() => {
      window.faded = []
      addEventListener('animationstart', (e) => {
        const keys = e.target.getAnimations().flatMap((a) => a.effect.getKeyframes())
        if (e.target.closest('[data-testid=window]') && keys.some((k) => 'opacity' in k)) window.faded.push(e.animationName)
        else window.moved = true
      })
    })
    await say(frame, asked)
    await win.getByTestId('asked').waitFor()
    assert.ok(await frame.evaluate(() => window.moved), 'nothing was looked at')
    assert.deepEqual(await frame.evaluate(() => window.faded), [])
    await page.emulateMedia({ reducedMotion: 'reduce' })
    assert.equal(await win.getByRole('heading').first().evaluate((e) => `${e.tagName} ${e.textContent}`), `H1 ${asked}`)
    const [a, b] = [await box(read), await box(win)]
    assert.ok(b.left >= a.right || b.right <= a.left, `it covers what was read: ${JSON.stringify([a, b])}`)
    assert.ok(b.left >= 0 && b.right <= 1440, JSON.stringify(b))
  })

  await t.test('long words are cut, and shown whole by a key', async () => {
    const height = async () => (await box(win.getByTestId('asked'))).bottom - (await box(win.getByTestId('asked'))).top
    const cut = await height()
    await win.getByRole('button', { name: 'Show all' }).press('Enter')
    await until('all is shown', async () => (await height()) > cut + 40)
    await win.getByRole('button', { name: 'Show less' }).press('Enter')
    await until('it is cut', async () => (await height()) === cut)
  })

  await t.test('what is being done, with what agents told each other folded', async () => {
    await win.getByTestId('run-objective').getByText('The sum adds, and its tests pass').waitFor()
    await win.getByTestId('run-now').getByText('Working on: Mend it').waitFor()
    await win.getByText('Ran cd workspace/sum && npm test >/dev/null: it failed').or(win.getByText('Ran cd workspace/sum && npm test >/dev/null')).first().waitFor()
    const told = win.getByTestId('told')
    assert.equal(await told.getByText(goal).isVisible(), false, 'an agent’s instructions are shown')
    await pictures('working')
    await told.locator('summary').press('Enter')
    await told.getByText(goal).waitFor()
    await told.getByText('npm test passes').waitFor()
  })

  await t.test('a toast of it comes when its window is not seen, one, and goes when it is', async () => {
    const toasts = frame.getByTestId('toast')
    await until('the theme is told and gone', async () => (await toasts.count()) === 0)
    await win.getByRole('button', { name: /^Minimise/ }).click()
    model.release('look')
    await toasts.getByText('Verified checkpoint').waitFor()
    model.release('report')
    await toasts.getByText('Done and verified').waitFor()
    assert.equal(await toasts.count(), 1, 'one of each run')
    await toasts.getByRole('button', { name: 'Show' }).click()
    await win.locator('[data-testid=run][data-status=done]').waitFor()
    await until('its window shows it', async () => (await toasts.count()) === 0)
  })

  await t.test('what was done, in sentences', async () => {
    const text = (await win.getByTestId('run').innerText()).replaceAll(/\s+/g, ' ')
    assert.match(text, /Changed 1 file/)
    assert.match(text, /3 tests passed/)
    assert.match(text, /Ran cd workspace\/sum && npm test >\/dev\/null: it ended with exit code 1/)
    assert.equal(await win.getByTestId('run-now').count(), 0)
    await pictures('done')
  })

  await t.test('one that failed says why; the next one stands beside it', async () => {
    const before = frame.locator(`[data-testid=window][data-app=run]`).first()
    await say(frame, 'Mend the roof')
    await win.locator('[data-testid=run][data-status=failed]').waitFor()
    const [a, b] = [await box(before), await box(win)]
    assert.ok(b.left >= a.right || b.right <= a.left, JSON.stringify([a, b]))
    assert.equal(await frame.getByTestId('toast').filter({ hasText: 'Run failed' }).count(), 0, 'its window shows it')
    await pictures('failed')
  })
  g.clean(t)
  assert.deepEqual(faults, [])
})

test('a rehearsal says so once', async (t) => {
  const choir = await Choir.start(t)
  const { context, faults } = await visitor(await browse(t), choir)
  const page = await claim(context, choir)
  const frame = await desktop(page)
  const win = frame.locator('[data-testid=window][data-active=true]')
  for (const [prompt, status] of [['Make the desktop background #0b1526', 'done'], ['Paint the fence of the house next door', 'failed']]) {
    await say(frame, prompt)
    await win.locator(`[data-testid=run][data-status=${status}]`).waitFor()
    await win.getByTestId('answer').waitFor()
    await win.getByTestId('run-rehearsal').waitFor()
    const text = await win.getByTestId('run').innerText()
    assert.equal(text.match(/rehearsal/gi)?.length, 1, text)
    assert.ok(!text.includes('ANTHROPIC_API_KEY'), text)
    const lines = await win.getByTestId('run-rehearsal').evaluate((e) => Math.round(e.getBoundingClientRect().height / parseFloat(getComputedStyle(e).lineHeight)))
    assert.equal(lines, 1, 'it is one line')
  }
  await win.getByTestId('run-rehearsal').getByRole('button', { name: 'Connect one' }).click()
  await frame.locator('[data-testid=window][data-app=welcome][data-active=true]').waitFor()
  assert.deepEqual(faults, [])
})
