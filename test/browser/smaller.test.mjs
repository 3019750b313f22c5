// Shows that small faults stay mended.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { axe, background, browse, Choir, claim, desktop, say, until, visitor } from './harness.mjs'

test('small things', async (t) => {
  const choir = await Choir.start(t)
  const { context } = await visitor(await browse(t), choir)
  const page = await claim(context, choir)
  const frame = await desktop(page)
  const bar = frame.getByTestId('prompt')
  const windows = (app) => frame.locator(`[data-testid=window][data-app=${app}]`)

  await t.test('the fifth thing to try goes back to the beginning', async () => {
    choir.put('notes.md', 'later\n')
    await say(frame, '/checkpoint later')
    await until('there is a newer checkpoint', () => choir.json('checkpoints').some((c) => c.message === 'later'))
    const first = choir.json('checkpoints').at(-1)
    await frame.getByTestId('try').nth(4).click()
    assert.equal(await bar.inputValue(), '/restore beginning')
    await bar.press('Enter')
    await frame.locator(`[data-testid=checkpoint][data-checkpoint="${first.id}"][aria-current=true]`).waitFor()
    await frame.getByTestId('restore-plan').waitFor()
    await frame.getByRole('button', { name: 'Close Time Travel' }).click()
  })
  await t.test('a double click opens one window', async () => {
    await frame.getByTestId('icon-events').dblclick()
    await windows('events').first().waitFor()
    assert.equal(await windows('events').count(), 1)
  })
  await t.test('history goes on past a line that could be completed', async () => {
    for (const line of ['!echo first', '/help', '!echo last']) {
      await say(frame, line)
      await until('it was sent', async () => (await bar.inputValue()) === '')
    }
    await bar.focus()
    for (const line of ['!echo last', '/help', '!echo first']) {
      await bar.press('ArrowUp')
      assert.equal(await bar.inputValue(), line)
    }
    await bar.press('ArrowDown')
    assert.equal(await bar.inputValue(), '/help')
    await bar.fill('')
  })
  await t.test('two windows of one title are told apart, also in the list of their app', async () => {
    for (let n = 0; n < 8; n++) {
      await say(frame, '!echo same')
      await frame.getByRole('region', { name: n === 0 ? 'echo same' : `echo same (${n + 1})`, exact: true }).waitFor()
    }
    assert.deepEqual(await axe(frame), [])
    await frame.getByRole('list', { name: 'Open windows' }).getByRole('button', { name: /^Command \d+ windows$/ }).click()
    const list = frame.getByRole('navigation', { name: /^Command, \d+ windows$/ })
    await list.getByRole('button', { name: 'echo same (8)', exact: true }).waitFor()
    assert.deepEqual(await axe(frame), [])
    await list.getByRole('button', { name: 'echo same (3)', exact: true }).click()
    await frame.getByRole('region', { name: 'echo same (3)', exact: true }).and(frame.locator('[data-active=true]')).waitFor()
  })
  await t.test('a theme in which nothing could be read is painted so that everything can', async () => {
    const theme = JSON.parse(choir.cli(['files', 'cat', 'artifacts/system/theme.json']))
    const paint = async (hex) => {
      theme.colors.background = hex
      choir.put('artifacts/system/theme.json', JSON.stringify(theme))
      await until(`the desktop is ${hex}`, async () => (await background(frame)) === hex)
      // The colours change gradually, so axe checks when they have changed.
      await until('everything can be read', async () => (await axe(frame)).filter((v) => v.startsWith('color-contrast')).length === 0)
    }
    await paint('#008080')
    await paint(theme.colors.text)
    assert.deepEqual(choir.events().filter((e) => e.type === 'theme.refused'), [])
  })
  await t.test('a link that was used has a way on', async () => {
    const again = await context.newPage()
    await again.goto(choir.claim_url)
    await again.getByRole('button', { name: 'Open my computer' }).click()
    await again.getByText('You are signed in in this browser already').waitFor()
    await again.getByRole('link', { name: 'Open your computer' }).click()
    await desktop(again)
    await again.goto(`${choir.url}/claim`)
    await again.getByRole('link', { name: 'open your computer' }).waitFor()
  })
})
