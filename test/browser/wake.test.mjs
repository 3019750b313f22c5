// A computer that does not wake, as its user meets it: what its page says, each
// of its buttons through to the files, pictures of it, and that the desktop is
// there afterwards.

import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { test } from 'node:test'
import { atEnd, browse, Choir, claim, fetchRaw, gallery, scratch, visitor } from './harness.mjs'

const themes = [['night', 'dark'], ['day', 'light']]

/** Holds the lock of a file, as another process would that has it open; release lets go. */
async function hold(t, file) {
  const p = spawn('flock', ['-x', file, 'sh', '-c', 'echo held; exec cat'], { stdio: ['pipe', 'pipe', 'inherit'] })
  const ended = new Promise((r) => p.once('exit', r))
  const release = async () => {
    p.stdin.end()
    await ended
  }
  atEnd(t, release)
  await new Promise((r) => createInterface({ input: p.stdout }).once('line', r))
  return release
}

test('each button of a computer that does not wake', async (t) => {
  const data = scratch(t)
  const env = { CHOIR_RUNTIME_WAKE_TRIES: '0' }
  let choir = await Choir.start(t, { data, env })
  const browser = await browse(t)
  const { context } = await visitor(browser, choir)
  await claim(context, choir)
  const storageState = await context.storageState()
  await context.close()
  choir.put('workspace/kept', 'one')
  choir.cli(['checkpoint', '-m', 'The first of two'])
  choir.put('workspace/kept', 'two')
  choir.cli(['checkpoint', '-m', 'The second of two'])
  await choir.stop()
  const home = join(data, 'computers', readdirSync(join(data, 'computers'))[0])
  const kept = () => readFileSync(join(home, 'workspace/workspace/kept'), 'utf8')

  let pages = []
  const faults = []
  const start = async (own = env) => {
    choir = await Choir.start(t, { data, env: own })
    pages = []
    for (const [theme, colorScheme] of themes) {
      const v = await visitor(browser, choir, { colorScheme, storageState })
      faults.push(v.faults)
      const page = await v.context.newPage()
      await page.goto(choir.url)
      pages.push({ theme, page, context: v.context })
    }
    return pages[0].page
  }
  const stop = async () => {
    for (const { context } of pages) await context.close()
    await choir.stop()
  }
  const card = (page) => page.getByRole('alertdialog', { name: 'Studio: it does not wake' })
  const button = (page, name) => card(page).getByRole('button', { name })
  const shown = (page) => page.locator('iframe[data-role=shown]').waitFor()
  const state = async () => {
    const { body } = await fetchRaw(`http://127.0.0.1:${choir.port}/api/computers`, { headers: { authorization: `Bearer ${choir.token}` } })
    return JSON.parse(body)[0].state
  }
  const g = gallery()

  let release = await hold(t, join(home, 'keeper.lock'))
  let page = await start()
  await t.test('it says why, and what is safe', async (t2) => {
    for (const { theme, page } of pages) {
      await card(page).getByText('keeper.lock is locked').waitFor()
      await card(page).getByText('Everything that was acknowledged is in the log').waitFor()
      assert.equal(await page.getByRole('button', { name: 'Rewind' }).isDisabled(), true)
      assert.deepEqual(await card(page).getByRole('button').allTextContents(), ['Go back to a checkpoint…', "Open without the tasks' remains", 'Try again'])
      await g.all(page, null, `${theme}-not-awake`)
    }
    g.clean(t2)
  })

  await t.test('try again, and it still does not', async () => {
    await button(page, 'Try again').click()
    await card(page).getByText(/Tried again at .*: it still does not wake/).waitFor()
  })

  await t.test('export', async () => {
    const [download] = await Promise.all([page.waitForEvent('download'), card(page).getByRole('link', { name: 'Export files and events' }).click()])
    const archive = join(scratch(t), download.suggestedFilename())
    await download.saveAs(archive)
    assert.equal(await download.failure(), null)
    const tar = (...args) => spawnSync('tar', args, { encoding: 'utf8' }).stdout
    assert.equal(tar('-xOf', archive, 'files/workspace/kept'), 'two')
    assert.match(tar('-xOf', archive, 'events.jsonl'), /"computer\.created"/)
  })

  await t.test('go back, and see first what would change', async (t2) => {
    await button(page, 'Go back').click()
    const dialog = (p) => p.getByRole('dialog', { name: 'Go back to a checkpoint' })
    await dialog(page).getByText("can't be opened either").waitFor() // somebody else has the files
    assert.equal(await dialog(page).getByRole('button', { name: 'Go back' }).isDisabled(), true)
    await page.keyboard.press('Escape')
    await release()
    for (const { theme, page } of pages) {
      await button(page, 'Go back').click()
      const first = await dialog(page).getByRole('option', { name: 'The first of two' }).getAttribute('value')
      await dialog(page).getByLabel('Checkpoint').selectOption(first)
      await dialog(page).getByText('1 file changes: workspace/kept.').waitFor()
      await g.all(page, null, `${theme}-go-back`)
      if (page !== pages[0].page) await dialog(page).getByRole('button', { name: 'Keep it as it is' }).click()
    }
    assert.equal(kept(), 'two')
    assert.equal(await state(), 'failed', 'looking has woken it')
    await dialog(page).getByRole('button', { name: 'Go back' }).click()
    for (const { page } of pages) await shown(page) // also where nobody pressed it
    await page.getByText(/The files are as they were at checkpoint/).waitFor()
    assert.equal(kept(), 'one')
    choir.cli(['undo'])
    assert.equal(kept(), 'two')
    g.clean(t2)
  })

  await t.test('try again, once the reason has passed', async () => {
    await stop()
    release = await hold(t, join(home, 'keeper.lock'))
    page = await start({})
    await card(page).getByText(/It is tried again by itself at/).waitFor()
    await release()
    // It may wake by itself before the button is there to be pressed, which is then gone.
    await Promise.any([button(page, 'Try again').click(), shown(page)])
    await shown(page)
  })

  await t.test('open without the remains of tasks', async () => {
    await stop()
    mkdirSync(join(home, 'boxes', 'left', '.run', 'lock'), { recursive: true }) // where a file belongs
    page = await start()
    await card(page).getByText('left').waitFor()
    await button(page, 'Try again').click()
    await card(page).getByText(/Tried again at/).waitFor()
    await button(page, "Open without the tasks' remains").click()
    await shown(page)
    await page.getByText('It was opened without what its tasks had left').waitFor()
    const aside = readdirSync(home).filter((n) => n.startsWith('boxes.aside-'))
    assert.deepEqual(aside.flatMap((n) => readdirSync(join(home, n))), ['left'])
    assert.equal(kept(), 'two')
  })
  assert.equal(await state(), 'awake')
  // The browser says of an answer that the page puts into words.
  assert.deepEqual(faults.flat().filter((f) => !/status of (423|503)/.test(f)), [])
})

test('what is stored can not be opened', async (t) => {
  const data = scratch(t)
  let choir = await Choir.start(t, { data })
  const browser = await browse(t)
  await choir.stop()
  const accounts = join(data, 'control.sqlite')
  const whole = readFileSync(accounts)
  const hurt = Buffer.from(whole)
  hurt[hurt.lastIndexOf('Owner')] ^= 4
  writeFileSync(accounts, hurt)
  choir = await Choir.start(t, { data, stopped: true })
  const g = gallery()
  const faults = []
  let page
  for (const [theme, colorScheme] of themes) {
    const v = await visitor(browser, choir, { colorScheme })
    faults.push(v.faults)
    page = await v.context.newPage()
    const answer = await page.goto(`${choir.url}/claim#token`)
    assert.equal(answer.status(), 503)
    await page.getByRole('heading', { name: 'ChoirOS can’t open what it has stored.' }).waitFor()
    await page.getByText(/^control\.sqlite/).waitFor()
    await page.getByText('Run choir recover: it makes the file of accounts anew').waitFor()
    assert.equal(await page.getByRole('button').count() + (await page.getByRole('textbox').count()), 0, 'there is something to press')
    await g.all(page, null, `${theme}-stopped`)
  }
  g.clean(t)
  // It asks whether there is something else to say, and stays as it is while there is not.
  await page.evaluate(() => (window.stays = true))
  for (let n = 0; n < 2; n++) await page.waitForResponse((r) => new URL(r.url()).pathname === '/health')
  await page.getByRole('heading', { name: 'ChoirOS can’t open what it has stored.' }).waitFor()
  assert.equal(await page.evaluate(() => window.stays), true, 'it loaded again although nothing else was said')
  writeFileSync(accounts, whole)
  await page.getByRole('heading', { name: /This computer is yours|You are not signed in/ }).waitFor() // by itself
  // The server that takes the other's place may cut off a question.
  assert.deepEqual(faults.flat().filter((f) => !/status of 503|ERR_CONNECTION_RESET .*\/health\)/.test(f)), [])
})
