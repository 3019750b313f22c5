// A desktop without windows shows where one left off and what could be tried: with the keyboard, in three sizes and both themes, by
// day and by night, after a reload. axe checks it, and pictures are kept in out/.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { browse, Choir, claim, desktop, gallery, say, until, visitor } from './harness.mjs'

test('a desktop without windows', async (t) => {
  const choir = await Choir.start(t)
  const { context, faults } = await visitor(await browse(t), choir)
  const page = await claim(context, choir)
  let frame = await desktop(page)
  const shelf = frame.getByTestId('shelf')
  const windows = frame.locator('[data-testid=window]:visible')
  const g = gallery()
  const pictures = async (name) => {
    for (const theme of ['night', 'day']) {
      await say(frame, `/theme ${theme}`)
      await frame.locator(`html[data-scheme=${theme === 'night' ? 'dark' : 'light'}]`).waitFor()
      await shelf.waitFor()
      await g.all(page, frame, `${theme}-${name}`)
    }
  }

  await t.test('has things to try, and repeats no name', async (t2) => {
    await windows.filter({ hasText: 'Five things' }).waitFor()
    assert.equal(await shelf.count(), 0, 'there is a shelf behind a window')
    await say(frame, '/new')
    await shelf.getByTestId('shelf-try').first().waitFor()
    assert.equal(await shelf.getByTestId('shelf-run').count(), 0)
    assert.ok(!(await frame.getByRole('main').innerText()).includes('Studio'), 'the name is told where the frame tells it')
    await pictures('shelf-empty')
    g.clean(t2)
  })

  await t.test('fills the prompt bar', async () => {
    await shelf.getByRole('button', { name: 'Run a command' }).click()
    assert.equal(await frame.getByTestId('prompt').inputValue(), '!git log --oneline -5')
    await frame.getByTestId('prompt').fill('')
  })

  await t.test('has the newest runs, newest first, and goes when one opens', async (t2) => {
    const asks = ['Make the desktop background deep blue', 'Add a clock app to the desktop']
    for (const ask of asks) {
      await say(frame, ask)
      await frame.locator('[data-testid=window][data-active=true]').getByText('not verified').or(frame.locator('[data-testid=window][data-active=true]').getByText('verified')).first().waitFor({ timeout: 60_000 })
    }
    assert.equal(await shelf.count(), 0)
    await say(frame, '/new')
    await shelf.getByTestId('shelf-run').nth(1).waitFor()
    assert.deepEqual(await shelf.getByTestId('shelf-run').locator('span:last-of-type').allInnerTexts(), asks.toReversed())
    await pictures('shelf')
    g.clean(t2)
  })

  await t.test('is there after a reload, and opens a run by keyboard', async () => {
    await page.reload()
    frame = await desktop(page)
    const run = frame.getByTestId('shelf-run').first()
    await run.focus()
    await run.press('Enter')
    await frame.locator('[data-testid=window][data-active=true]').getByText('Add a clock app to the desktop').first().waitFor()
    await frame.getByTestId('shelf').waitFor({ state: 'detached' })
  })

  await t.test('what is not loaded when the line goes down harms nothing, and comes with the line', async () => {
    await page.reload()
    frame = await desktop(page)
    await frame.locator('[data-testid=window][data-active=true]').waitFor()
    // The apps of the windows that are there are loaded: without the line one that is not says so, and is not what is tried here.
    await until('all windows have what they show', () => frame.evaluate(() => [...document.querySelectorAll('[data-testid=window]')].every((w) => !w.querySelector('[aria-busy=true]'))))
    const refuse = (route) => route.abort()
    await page.route(/\/shell\/(Shelf|Choices)\.tsx|\/assets\/(Shelf|Choices)-/, refuse)
    await context.setOffline(true)
    await frame.locator('[data-testid=connection]:not([data-state=online])').waitFor()
    await frame.getByTestId('uses').click()
    await frame.getByText('What can be chosen is not loaded yet').waitFor()
    await say(frame, '/new')
    await frame.getByTestId('offline').waitFor()
    await frame.locator('[data-testid=window][data-hidden=false]').first().waitFor({ state: 'detached' })
    assert.equal(await frame.getByText('stopped working').count(), 0)
    await context.setOffline(false)
    await frame.locator('[data-testid=connection][data-state=online]').waitFor()
    assert.equal(await frame.getByTestId('shelf').count(), 0)
    await page.unroute(/\/shell\/(Shelf|Choices)\.tsx|\/assets\/(Shelf|Choices)-/, refuse)
    await frame.getByTestId('shelf').waitFor()
    faults.splice(0) // the browser complains of each request that it was refused
  })

  assert.deepEqual(faults, [])
})
