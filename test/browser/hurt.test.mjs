// Shows that a desktop survives what hurts whoever looks at it, or everybody else.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { desktop, opened, say, until } from './harness.mjs'

const shell = 'choiros/src/shell/Desktop.tsx'

test('an endless loop in render', async (t) => {
  const { choir, page } = await opened(t)
  const frame = await desktop(page)
  const good = choir.cli(['files', 'cat', shell])
  await frame.getByTestId('prompt').fill('what I was typing')
  // This waits in the queue, as it would while the connection is down.
  const origin = await frame.evaluate(() => location.origin)
  choir.put(shell, good.replace('  useKeys()\n', '  if (name) for (;;) document.title = String(Math.random())\n  useKeys()\n'))
  const card = page.getByRole('alertdialog')
  await card.getByText('does not answer').waitFor()

  await t.test('the frame goes on, and offers a way out', async () => {
    assert.equal(await page.evaluate(() => 1 + 1), 2)
    await card.getByRole('button', { name: 'Start it afresh' }).waitFor()
    choir.put(shell, good)
    await card.getByRole('button', { name: 'Start it afresh' }).click()
    assert.ok(!(await page.getByRole('status').innerText()).includes('started afresh'), 'nothing is said before it is seen')
  })
  await t.test('a fresh page takes its place, on an origin of its own, with what was typed', async () => {
    await page.getByRole('status').getByText('started afresh').waitFor()
    const fresh = await desktop(page)
    assert.match(await fresh.evaluate(() => location.origin), /--g1\.desk\./)
    assert.notEqual(await fresh.evaluate(() => location.origin), origin)
    assert.equal(await fresh.getByTestId('prompt').inputValue(), 'what I was typing')
    await card.waitFor({ state: 'hidden' })
    await say(fresh, '!echo it runs')
    await fresh.getByRole('log').getByText('it runs').waitFor()
  })
})

test('a prompt of a megabyte', async (t) => {
  const { choir, page } = await opened(t)
  const frame = await desktop(page)
  const long = `${'The quick brown fox. '.repeat(50_000)}end`
  const offer = frame.getByTestId('too-long')

  await t.test('it is offered as a file, and nothing is queued', async () => {
    await say(frame, long)
    await offer.getByText('a prompt holds 32 KB').waitFor()
    assert.ok(await frame.getByTestId('waiting').isHidden())
    await offer.getByRole('button', { name: 'Put it in a file' }).click()
    await until('the bar says where it is', async () => /^Read inbox\/prompt\.txt and /.test(await frame.getByTestId('prompt').inputValue()))
    assert.equal(choir.cli(['files', 'cat', 'inbox/prompt.txt']), long)
  })

  await t.test('one that an older page left in the queue stands aside, is shown, and is thrown away', async () => {
    const poison = await frame.evaluate((text) => {
      const cid = window.__choir.stores.connection.getState().cid
      const id = '01890000-0000-7000-8000-000000000001'
      localStorage.setItem(`choir.outbox.${cid}`, JSON.stringify([{ action: { type: 'prompt.submitted', id, data: { text } }, tries: 0, stuck: '' }]))
      return id
    }, long)
    await page.reload()
    const again = await desktop(page)
    await again.getByTestId('waiting').getByText('1 not sent').waitFor()
    await say(again, '!echo others go on')
    await again.getByRole('log').getByText('others go on').waitFor()
    await again.getByTestId('waiting').click()
    await again.getByRole('region', { name: 'What waits to be sent' }).getByText('The quick brown fox').waitFor()
    await again.getByRole('button', { name: 'Discard' }).click()
    await again.getByTestId('waiting').waitFor({ state: 'detached' })
    assert.ok(!choir.events().some((e) => e.id === poison))
  })
})

test('the cursor is in the prompt bar, and stays there', async (t) => {
  const { page } = await opened(t)
  const first = page.locator('iframe[data-role=shown]')
  await first.waitFor()
  const typed = 'typed before the page was live'

  await t.test('after the claim one can type at once', async () => {
    await until('the bar has the cursor', async () => {
      const frame = await (await first.elementHandle()).contentFrame()
      return frame && (await frame.evaluate(() => document.activeElement?.dataset?.testid === 'prompt').catch(() => false)) && (await page.evaluate(() => document.activeElement?.tagName === 'IFRAME'))
    })
    await page.keyboard.type(typed)
    for (let n = 0; n < 5; n++) await page.keyboard.press('ArrowLeft')
  })
  await t.test('through the swap to the live page, with text and caret', async () => {
    const live = await desktop(page)
    const bar = live.getByTestId('prompt')
    await until('the text is there', async () => (await bar.inputValue()) === typed)
    await until('the cursor is where it was', () => bar.evaluate((e) => e === document.activeElement && e.selectionStart === e.value.length - 5))
    await page.keyboard.type('X')
    assert.equal(await bar.inputValue(), `${typed.slice(0, -5)}X${typed.slice(-5)}`)
  })
  await t.test('Ctrl-K from the console’s own document', async () => {
    await page.locator('#account').focus()
    assert.equal(await page.evaluate(() => document.activeElement.id), 'account')
    await page.keyboard.press('Control+k')
    const live = await desktop(page)
    await until('the bar has the cursor', () => live.getByTestId('prompt').evaluate((e) => e === document.activeElement && document.hasFocus()))
  })
})

test('a dropped file goes into the workspace, and the page stays', async (t) => {
  const { choir, page } = await opened(t)
  const frame = await desktop(page)
  await frame.evaluate(() => {
    const data = new DataTransfer()
    data.items.add(new File(['dropped\n'], 'notes.txt', { type: 'text/plain' }))
    const over = new DragEvent('dragover', { dataTransfer: data, bubbles: true, cancelable: true })
    const drop = new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true })
    window.prevented = [over, drop].map((e) => !document.querySelector('[data-testid=desktop]').dispatchEvent(e))
  })
  assert.deepEqual(await frame.evaluate(() => window.prevented), [true, true])
  await until('its path is in the bar', async () => (await frame.getByTestId('prompt').inputValue()) === 'inbox/notes.txt ')
  assert.equal(choir.cli(['files', 'cat', 'inbox/notes.txt']), 'dropped\n')
})

test('a command that never stops writing', async (t) => {
  const { choir, context, page } = await opened(t)
  const frame = await desktop(page)
  const running = page.locator('#running')

  await t.test('the page goes on, and holds a bounded end of it', async () => {
    await say(frame, '!yes')
    await frame.getByRole('log').getByText('y').first().waitFor()
    await frame.getByText('The beginning was left out.').waitFor()
    // While it arrives the page has turns for other things, for most of the time, however slow this
    // machine is. Output with which it could not keep up would leave none.
    const idle = await frame.evaluate(async () => {
      const turn = () => new Promise((r) => setTimeout(r, 0))
      const taken = () => Object.values(window.__choir.stores.commands.getState().commands)[0].next
      let turns = 0
      let pieces = 0
      for (let last = taken(); pieces < 5 && turns < 100_000; turns++) {
        await turn()
        if (taken() === last) continue
        last = taken()
        pieces++
      }
      return pieces === 5 ? turns / pieces : 0
    })
    assert.ok(idle > 1.5, `the page had ${idle} turns for each piece of output`)
    assert.ok((await frame.getByRole('log').evaluate((e) => e.textContent.length)) < 250_000)
  })
  await t.test('the frame lists it, and goes on to after its window and its page are closed', async () => {
    await running.getByText('yes', { exact: true }).waitFor()
    await frame.getByRole('button', { name: 'Close yes' }).click()
    await running.getByText('yes', { exact: true }).waitFor()
    await page.close()
    const again = await context.newPage()
    await again.goto(choir.url)
    const listed = again.locator('#running')
    await listed.getByText('yes', { exact: true }).waitFor()
    await listed.locator('#running-more').click()
    const sheet = again.getByRole('region', { name: 'What runs' })
    await sheet.getByText('yes', { exact: true }).waitFor()
    // Words that are longer than the sheet are cut off at their end and never push it aside.
    await sheet.getByText('yes', { exact: true }).evaluate((e) => (e.textContent += ' and a word'.repeat(40)))
    assert.equal(await sheet.evaluate((e) => e.scrollWidth - e.clientWidth), 0)
    await sheet.getByRole('button', { name: 'Stop' }).click()
    await listed.waitFor({ state: 'hidden' })
    await until('it is logged who ended it', () => choir.events().some((e) => e.type === 'command.finished' && e.data.reason === 'stopped by the user'))
  })
})
