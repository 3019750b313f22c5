// Shows where what a computer was told to keep is forgotten: on the console, which says first what goes with it, and undoes it.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { browse, Choir, claim, desktop, gallery, modelServer, say, sizes, until, visitor } from './harness.mjs'

test('what is kept is forgotten on the console', async (t) => {
  const match = 'Have a look'
  const model = await modelServer(t, {
    turns: [
      { role: 'director', match, calls: [{ name: 'remember', args: { words: 'From now on write British English.' } }] },
      { role: 'director', match, calls: [{ name: 'report', args: { status: 'done', summary: 'Noted.' } }] },
    ],
  })
  const choir = await Choir.start(t, { env: { ANTHROPIC_API_KEY: 'sk-ant-test-0123456789abcdef', ANTHROPIC_BASE_URL: model.url, CHOIR_MODEL: 'anthropic/claude-sonnet-4-6' } })
  const { context, faults } = await visitor(await browse(t), choir)
  const page = await claim(context, choir)
  const frame = await desktop(page)
  const { one, clean } = gallery()
  const sheet = page.getByRole('region', { name: 'What is kept' })
  const card = (name) => sheet.getByRole('listitem').filter({ has: page.getByRole('heading', { name, exact: true }) })
  const kept = () => choir.json('memory').map((f) => f.text)
  const open = async () => {
    await page.locator('#account').click()
    await page.getByRole('button', { name: 'What is kept' }).click()
    await sheet.waitFor()
  }
  const pictures = async (name) => {
    for (const theme of ['night', 'day']) {
      await page.emulateMedia({ colorScheme: theme === 'night' ? 'dark' : 'light' })
      for (const [width, height] of sizes) {
        await page.setViewportSize({ width, height })
        await one(page, null, `${width}-${theme}-${name}`)
      }
    }
    await page.setViewportSize({ width: 1440, height: 900 })
    clean(t)
  }
  const focused = (words) => until(`the cursor is on ${words}`, () => page.evaluate((w) => document.activeElement.textContent === w, words))

  await t.test('there is a place for it while nothing is kept', async () => {
    await open()
    await sheet.getByText('Nothing is kept.').waitFor()
    await pictures('forget-none')
    await page.keyboard.press('Escape')
    await until('the cursor is back', () => page.evaluate(() => document.activeElement.id === 'account'))
  })

  const markup = '<img src=x onerror="document.title=1"> is no markup.'
  const tabs = choir.json('remember', 'Always indent with tabs.')
  choir.json('remember', '--from', tabs.id, 'In Makefiles, too.')
  choir.json('remember', markup)
  await say(frame, `${match}. From now on write British English.`)
  const run = await until('it is noted', () => choir.json('runs').find((r) => r.status === 'done'))

  await t.test('each fact says where it comes from, and what goes with it before it goes', async () => {
    await open()
    await until('all four are listed', async () => (await sheet.getByRole('listitem').count()) === 4)
    const noted = await card('From now on write British English.').innerText()
    for (const words of ['You, in the prompt of a run', 'From the event', run.id.slice(-8)]) assert.ok(noted.includes(words), `${words} in ${noted}`)
    await card('In Makefiles, too.').getByText('“Always indent with tabs.”').waitFor()
    await card(markup).waitFor()
    await card('In Makefiles, too.').getByRole('button', { name: 'Forget…' }).click()
    await card('In Makefiles, too.').getByText('Nothing else follows from it.').waitFor()
    await card('In Makefiles, too.').getByRole('button', { name: 'Keep it' }).click()
    await focused('Forget…')
    await card('Always indent with tabs.').getByRole('button', { name: 'Forget…' }).focus()
    await page.keyboard.press('Enter')
    await focused('Keep it')
    await card('Always indent with tabs.').getByText('With it goes what follows from it, one fact:').waitFor()
    assert.equal(kept().length, 4, 'nothing is forgotten yet')
    await pictures('forget')
  })

  await t.test('it is forgotten with what follows, and kept again by an undo', async () => {
    await page.keyboard.press('Tab')
    await focused('Forget all 2')
    await page.keyboard.press('Enter')
    await focused('Undo')
    assert.deepEqual(kept(), ['From now on write British English.', markup])
    await pictures('forget-gone')
    await page.keyboard.press('Enter')
    await until('all four are listed', async () => (await sheet.getByRole('listitem').count()) === 4)
    assert.equal(kept().length, 4)
    const events = choir.events()
    const actors = events.filter((e) => ['memory.forgotten', 'memory.restored'].includes(e.type)).map((e) => [e.type, e.actor.split(':')[0]])
    assert.deepEqual(actors, [['memory.forgotten', 'person'], ['memory.restored', 'person']])
  })

  await t.test('an undo undoes nothing else that was done since', async () => {
    await card(markup).getByRole('button', { name: 'Forget…' }).click()
    await card(markup).getByRole('button', { name: 'Forget it' }).click()
    await focused('Undo')
    choir.put('workspace/since.txt', 'since')
    await page.keyboard.press('Enter')
    await page.getByText('Something else was done since').waitFor()
    assert.equal(kept().length, 3)
    assert.equal(choir.cli(['files', 'cat', 'workspace/since.txt']), 'since')
    // And one that names an act is of no other, whatever came between the two requests.
    const status = await page.evaluate((cid) => fetch(`/api/computers/${cid}/undo`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{"act":1}' }).then((r) => r.status), choir.events()[0].computer)
    assert.equal(status, 409)
    assert.equal(choir.cli(['files', 'cat', 'workspace/since.txt']), 'since')
  })

  await t.test('what follows since it was shown is shown first', async () => {
    await card('Always indent with tabs.').getByRole('button', { name: 'Forget…' }).click()
    choir.json('remember', '--from', tabs.id, 'In JSON, too.')
    await card('Always indent with tabs.').getByRole('button', { name: 'Forget all 2' }).click()
    await sheet.getByText('What goes with it has changed meanwhile.').waitFor()
    assert.equal(kept().length, 4)
  })

  await t.test('it leads to the run that it comes from', async () => {
    await card('From now on write British English.').getByRole('button', { name: 'Open the run' }).click()
    await frame.locator('[data-testid=window][data-active=true] [data-testid=run]').waitFor()
    assert.ok(await sheet.isHidden())
  })
  await t.test('nothing else complained', () => assert.deepEqual(faults.filter((f) => !/undo/.test(f)), []))
})
