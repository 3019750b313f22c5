// Shows each sheet of the console's account menu through to its effect: a model is connected and used, a link signs another
// browser in, sessions end, the computer gets a name, storage and doctor say what there is, all is well since, and it stops.

import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { browse, Choir, claim, desktop, gallery, modelServer, say, scratch, sizes, until, visitor } from './harness.mjs'

/** Every file beneath a directory that holds some bytes. */
function holding(dir, bytes) {
  return readdirSync(dir, { recursive: true, withFileTypes: true })
    .filter((e) => e.isFile())
    .map((e) => join(e.parentPath, e.name))
    .filter((f) => {
      try {
        return readFileSync(f).includes(bytes)
      } catch {
        return false // it is gone already
      }
    })
}

test('the sheets of the account menu', async (t) => {
  const model = await modelServer(t, {
    turns: [
      { match: 'one word', text: 'the key is not one of ours', fault: { kind: 'status', status: 401 } },
      { match: 'one word', text: 'ready', repeat: true },
      { role: 'director', match: 'Say hello', calls: [{ name: 'report', args: { status: 'done', summary: 'Hello from the model that was connected.' } }] },
    ],
  })
  const dir = scratch(t)
  writeFileSync(join(dir, 'models.toml'), '[[models]]\nname = "acme/*"\ncontext = 100000\nmax_output = 8192\nprice_in = 0.0\nprice_out = 0.0\n')
  writeFileSync(join(dir, 'config.toml'), `[models]\ncatalogue = "${join(dir, 'models.toml')}"\n\n[models.providers.acme]\nbase_url = "${model.url}/v1"\nkey = "ACME_API_KEY"\n`)
  const env = { CHOIR_CONFIG: join(dir, 'config.toml') }
  const choir = await Choir.start(t, { env })
  const browser = await browse(t)
  const { context, faults } = await visitor(browser, choir)
  const page = await claim(context, choir)
  let frame = await desktop(page)
  const cid = choir.events()[0].computer
  const { one, clean } = gallery()
  const sent = []
  context.on('request', (r) => sent.push(`${r.method()} ${r.url()}`))
  const menu = page.getByRole('navigation', { name: 'Account' })
  const sheet = (name) => page.getByRole('dialog', { name })
  const open = async (entry, name) => {
    await page.locator('#account').click()
    await menu.getByRole('button', { name: entry }).focus()
    await page.keyboard.press('Enter')
    await sheet(name).waitFor()
    return sheet(name)
  }
  const back = async () => {
    await page.keyboard.press('Escape')
    await until('the cursor is back', () => page.evaluate(() => document.activeElement.id === 'account' && !document.querySelector('dialog.of-account')))
  }
  const pictures = async (name) => {
    for (const theme of ['night', 'day']) {
      await page.evaluate((s) => (document.documentElement.dataset.scheme = s), theme === 'night' ? 'dark' : 'light')
      for (const [width, height] of sizes) {
        await page.setViewportSize({ width, height })
        await until('the desktop is as wide', () => frame.evaluate((w) => new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(() => r(innerWidth === w)))), width))
        await one(page, null, `${width}-${theme}-sheet-${name}`)
        if (width === 390) assert.deepEqual(await small(), [], `${name} on a phone`)
      }
    }
    await page.evaluate(() => (document.documentElement.dataset.scheme = 'dark'))
    await page.setViewportSize({ width: 1440, height: 900 })
    clean(t)
  }
  /** What of a sheet or the menu is too small for a finger. */
  const small = () => page.evaluate(() => {
    const pressed = [...document.querySelectorAll('dialog[open] button, dialog[open] input:not([type=radio]), dialog[open] fieldset label, #account-menu:not([hidden]) button')]
    return pressed.filter((e) => e.getClientRects().length > 0 && e.getBoundingClientRect().height < 44).map((e) => e.outerHTML.slice(0, 80))
  })
  /** Goes once around the sheet by the Tab key: the cursor stays in it, and reaches all that can be pressed. */
  const trapped = async () => {
    const all = await page.evaluate(() => [...document.querySelectorAll('dialog[open] :is(button, input)')].filter((e) => !e.disabled && e.getClientRects().length > 0 && (e.type !== 'radio' || e.checked)).length)
    const seen = new Set()
    for (let i = 0; i < all + 3; i++) {
      await page.keyboard.press('Tab')
      const at = await page.evaluate(() => {
        const e = document.activeElement
        if (e === document.body) return 'none' // the browser's own controls come between the last and the first
        return e.closest('dialog[open]') ? [...document.querySelectorAll('dialog[open] :is(button, input)')].indexOf(e) : e.outerHTML.slice(0, 80)
      })
      if (at !== 'none') seen.add(at)
    }
    assert.ok([...seen].every((s) => typeof s === 'number'), `the cursor left the sheet: ${[...seen]}`)
    assert.ok([...seen].filter((s) => s >= 0).length >= all, `${seen.size} of ${all} are reached`)
  }

  await t.test('nothing of them is loaded before the menu is opened', async () => {
    const loaded = () => page.evaluate(() => performance.getEntriesByType('resource').map((e) => new URL(e.name).pathname).filter((p) => /sheets|connect|signedin|dialog|well/.test(p)))
    assert.deepEqual(await loaded(), [])
    await page.locator('#account').click()
    await until('they are loaded', async () => (await loaded()).length >= 4)
    assert.match(await menu.innerText(), /ChoirOS \S+, MIT licence/)
    await pictures('menu')
    await page.keyboard.press('Escape')
  })

  const key = `sk-acme-${randomBytes(24).toString('hex')}`
  await t.test('a model: a key that is refused is told in a sentence and not kept', async () => {
    await page.locator('#rehearsal').waitFor()
    const s = await open('Connect a model…', 'Connect a model')
    await s.getByText('Runs are rehearsed now').waitFor()
    await pictures('connect')
    await trapped()
    await s.getByRole('radio', { name: 'acme' }).check()
    await s.getByLabel('Its key').fill(`${key}-wrong`)
    assert.equal(await s.getByLabel('Its key').getAttribute('type'), 'password')
    await page.keyboard.press('Enter')
    await s.getByText('acme did not answer with this key: the model service refused the key').waitFor()
    await s.getByText('The key was not kept, and runs go on as before.').waitFor()
    assert.equal(await s.getByLabel('Its key').inputValue(), '')
    assert.deepEqual(choir.json('secrets', 'ls'), [])
    await pictures('connect-refused')
  })
  await t.test('a model: one that answers is used by the next run, and its key is nowhere to be seen', async () => {
    const s = sheet('Connect a model')
    await s.getByLabel('Its key').fill(key)
    await s.getByRole('button', { name: 'Store and test' }).click()
    await sheet('acme is connected').getByText('nothing need be started again').waitFor()
    await pictures('connected')
    assert.deepEqual(choir.json('secrets', 'ls').map((x) => x.id), ['ACME_API_KEY'])
    assert.ok(model.requests.length > 0, 'the service was asked')
    await back()
    await page.locator('#rehearsal').waitFor({ state: 'hidden' })
    await until('the desktop knows it, too', async () => {
      frame = await desktop(page)
      return frame.getByTestId('desktop').innerText().then((words) => words.includes('script-1') && !words.includes('rehearsal'), () => false) // it may just be replaced
    })
    await say(frame, 'Say hello to me')
    await until('the run has ended', () => choir.json('runs').find((r) => r.summary?.includes('the model that was connected')))
    assert.ok(!(await page.content()).includes(key))
    assert.ok(!(await frame.content()).includes(key))
    assert.ok(!choir.log.includes(key) && !choir.cli(['logs', '--data', choir.data]).includes(key))
    assert.ok(!choir.cli(['events']).includes(key) && choir.events().some((e) => e.type === 'secret.set'))
    assert.ok(!sent.join('\n').includes(key))
    assert.deepEqual(holding(choir.data, key), [])
  })

  let other, second
  await t.test('a link: it signs another browser in, once', async () => {
    const s = await open('Link for another device…', 'Link for another device')
    await s.getByText(/It signs in once, until .* \(in 60 minutes\)/).waitFor()
    const url = await s.getByLabel('Link', { exact: true }).inputValue()
    assert.match(url, /\/claim\?again#[\w-]{20,}$/)
    await trapped()
    await s.getByRole('img', { name: 'The link as a QR code' }).waitFor()
    await context.grantPermissions(['clipboard-read', 'clipboard-write'], { origin: new URL(choir.url).origin })
    await s.getByRole('button', { name: 'Copy' }).click()
    await s.getByText('Copied.').waitFor()
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), url)
    await pictures('link')
    other = await visitor(browser, choir, { userAgent: 'Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0' })
    const signIn = async (p) => {
      await p.goto(url)
      await p.getByRole('button', { name: 'Sign in' }).click()
    }
    second = await other.context.newPage()
    await signIn(second)
    await second.waitForURL((u) => u.pathname === '/')
    await desktop(second)
    const third = await (await visitor(browser, choir)).context.newPage()
    await signIn(third)
    await third.getByText('not valid any more').waitFor()
    await back()
  })
  await t.test('sessions: who is signed in is listed, and signed out at once', async () => {
    const s = await open('Sessions…', 'Sessions')
    const rows = s.getByRole('listitem')
    await until('both are listed', async () => (await rows.count()) === 2)
    const own = rows.filter({ hasText: 'this one' })
    assert.match(await own.innerText(), /Chrome on Linux[\s\S]*Signed in .*, last used/)
    assert.equal(await own.getByRole('button').count(), 0)
    await pictures('sessions')
    await trapped()
    await rows.filter({ hasText: 'Firefox on Linux' }).getByRole('button', { name: 'Sign out' }).click()
    await s.getByText('Firefox on Linux is signed out.').waitFor()
    assert.equal(await rows.count(), 1)
    await second.waitForURL((u) => u.pathname === '/claim')
    assert.ok(await s.getByRole('button', { name: 'Sign out all others' }).isHidden())
    await back()
  })
  await t.test('sessions: all others end, and this one stays', async () => {
    const pages = []
    for (let i = 0; i < 2; i++) {
      const p = await (await visitor(browser, choir)).context.newPage()
      await p.goto(choir.json('open').url)
      await p.getByRole('button', { name: 'Sign in' }).click()
      await p.waitForURL((u) => u.pathname === '/')
      pages.push(p)
    }
    const s = await open('Sessions…', 'Sessions')
    await s.getByRole('button', { name: 'Sign out all others' }).click()
    await s.getByText('All others are signed out.').waitFor()
    for (const p of pages) await p.waitForURL((u) => u.pathname === '/claim')
    assert.equal(await page.evaluate(() => fetch('/api/account').then((r) => r.status)), 200)
    await back()
  })

  await t.test('the computer gets another name', async () => {
    const s = await open('Rename this computer…', 'Rename this computer')
    await pictures('rename')
    await trapped()
    await s.getByLabel('Name').fill('Atelier')
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { name: 'Atelier' }).waitFor()
    assert.equal(choir.json('computers')[0].name, 'Atelier')
    assert.ok(choir.events().some((e) => e.type === 'computer.renamed' && e.actor.startsWith('person:') && e.data.name === 'Atelier'))
  })
  await t.test('storage says what is used, the reserve and the last checkpoint', async () => {
    choir.put('workspace/seen.txt', 'seen')
    choir.cli(['checkpoint', '-m', 'The one that is seen'])
    const s = await open('Storage…', 'Storage')
    await s.getByText('The one that is seen').waitFor()
    const said = await s.innerText()
    for (const words of [/This computer\s+\d+ MB, of which \d+ MB are the history/, /All of ChoirOS\s+\d+ MB are used/, /Free\s+\d+ MB are free/, /Reserve\s+64 MB are kept for the log/]) assert.match(said, words)
    const [last] = choir.json('checkpoints')
    assert.ok(said.includes(last.message), `${last.message} in ${said}`)
    assert.match(said, /\d+ files? changed: The one that is seen/)
    await pictures('storage')
    await back()
  })
  await t.test('version and doctor: what there is, and again', async () => {
    const s = await open('Version and doctor…', 'Version and doctor')
    await s.getByText(/(Nothing is|\d+ of \d+) missing or damaged\./).waitFor()
    assert.match(await s.innerText(), /ChoirOS \S+, MIT licence/)
    assert.deepEqual(await s.getByRole('heading', { level: 3 }).allInnerTexts().then((all) => ['isolation', 'space', 'accounts'].filter((x) => !all.map((h) => h.toLowerCase()).includes(x))), [])
    const asked = () => sent.filter((r) => r.endsWith('/api/doctor')).length
    const before = asked()
    await s.getByRole('button', { name: 'Check again' }).click()
    await until('it was asked again', () => asked() === before + 1)
    await pictures('doctor')
    await trapped()
    await back()
  })
  await t.test('a rewind says since when all is well, next to what it would do', async () => {
    await page.locator('#rewind').click()
    const ask = page.getByRole('dialog', { name: 'Rewind the desktop' })
    await ask.getByText('already is as it was').waitFor()
    const said = await ask.innerText()
    const parts = choir.json('status').computers.find((c) => c.id === cid).parts.filter((p) => p.since)
    const woke = Math.max(Math.min(...parts.map((p) => Date.parse(p.since))), ...parts.filter((p) => p.restarts > 0).map((p) => Date.parse(p.since)))
    const clock = await page.evaluate((ms) => new Date(ms).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' }), woke)
    assert.ok(said.includes(`All is well since ${clock}.`), `${clock} in ${said}`)
    await pictures('rewind')
    await ask.getByRole('button', { name: 'Keep it as it is' }).click()
  })
  await t.test('nothing else complained', () => assert.deepEqual(faults, []))
  await t.test('it stops after a question, and says how it is started again', async () => {
    const s = await open('Stop ChoirOS…', 'Stop ChoirOS?')
    assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Keep it running')
    await pictures('stop')
    await trapped()
    await page.keyboard.press('Escape')
    assert.equal(choir.process.exitCode, null)
    await open('Stop ChoirOS…', 'Stop ChoirOS?')
    await s.getByRole('button', { name: 'Stop ChoirOS' }).click()
    await sheet('ChoirOS has stopped').getByText('Start it again with choir up').waitFor()
    assert.equal(await choir.ended, 0)
    await pictures('stopped')
    await sheet('ChoirOS has stopped').getByRole('button', { name: 'Close' }).click()
    await Choir.start(t, { data: choir.data, listen: `127.0.0.1:${choir.port}`, env })
    await page.locator('#state:is([data-state=awake], [data-state=working])').waitFor()
  })
})

test('who does not look after the machine is offered none of it, and refused', async (t) => {
  const choir = await Choir.start(t)
  const browser = await browse(t)
  const { context } = await visitor(browser, choir)
  const page = await context.newPage()
  await page.goto(choir.json('accounts', 'invite', 'Guest').url)
  await page.getByRole('button', { name: 'Sign in' }).or(page.locator('#go')).first().click()
  await page.waitForURL((u) => u.pathname === '/')
  await page.locator('#account').click()
  const menu = page.getByRole('navigation', { name: 'Account' })
  await menu.getByRole('button', { name: 'Sessions…' }).waitFor()
  for (const name of ['Connect a model…', 'Version and doctor…', 'Stop ChoirOS…']) assert.equal(await menu.getByRole('button', { name }).count(), 0, name)
  const status = (method, path, body) => page.evaluate(([m, p, b]) => fetch(p, { method: m, headers: { 'content-type': 'application/json' }, body: b }).then((r) => r.status), [method, path, body])
  assert.equal(await status('PUT', '/api/secrets/ANTHROPIC_API_KEY', '{"value":"sk-ant-0123456789"}'), 403)
  assert.equal(await status('POST', '/api/stop'), 403)
  assert.equal(choir.process.exitCode, null)
})
