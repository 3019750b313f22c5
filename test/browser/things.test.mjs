// Shows that files, folders, pictures and addresses are brought into a computer by dropping and pasting them, wherever that makes
// sense, and what is said where it does not. What is dropped are files of this machine's disk, by a real drag of the browser.

import assert from 'node:assert/strict'
import { mkdirSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { axe, browse, Choir, claim, desktop, gallery, opened, say, scratch, sizes, until, visitor } from './harness.mjs'

/** A pointer that drags files of this machine over a page. */
async function dragger(page, frame) {
  const cdp = await page.context().newCDPSession(page)
  const at = async (type, locator, data) => {
    const box = await locator.boundingBox()
    await cdp.send('Input.dispatchDragEvent', { type, x: box.x + Math.min(box.width / 2, 200), y: box.y + box.height / 2, data })
  }
  const data = (files) => ({ items: [], files, dragOperationsMask: 1 })
  return {
    // A pointer that is held goes on saying so; where it would go is shown once that part is loaded.
    over: async (locator, ...files) => {
      await at('dragEnter', locator, data(files))
      await until('where it would go is shown', async () => {
        await at('dragOver', locator, data(files))
        return frame.getByTestId('drop-here').isVisible()
      })
    },
    drop: async (locator, ...files) => {
      await at('dragEnter', locator, data(files))
      await at('dragOver', locator, data(files))
      await at('drop', locator, data(files))
    },
    // The browser's own cancelling of such a drag does not reach a frame of another process.
    leave: async () => {
      await frame.evaluate(() => document.querySelector('main').dispatchEvent(new DragEvent('dragleave', { bubbles: true })))
      await frame.getByTestId('drop-here').waitFor({ state: 'detached' })
    },
  }
}

const bar = (frame) => frame.getByTestId('prompt')
const cleared = (frame) => bar(frame).fill('')

/** In the desktop's page: drops or pastes at the first element of a selector what is described; returns whether the browser was kept from it. */
const give = (frame, type, selector, things) =>
  frame.evaluate(
    ([type, selector, { files = [], types = {} }]) => {
      const data = new DataTransfer()
      for (const { name, text, kind } of files) data.items.add(new File([text], name, { type: kind }))
      for (const [kind, text] of Object.entries(types)) data.setData(kind, text)
      const at = document.querySelector(selector)
      const event = type === 'paste' ? new ClipboardEvent(type, { clipboardData: data, bubbles: true, cancelable: true }) : new DragEvent(type, { dataTransfer: data, bubbles: true, cancelable: true })
      return !at.dispatchEvent(event)
    },
    [type, selector, things],
  )


/** Files and folders on this machine's disk: names and contents. */
function disk(t, tree) {
  const dir = scratch(t)
  for (const [path, text] of Object.entries(tree)) {
    const parts = path.split('/')
    mkdirSync(join(dir, ...parts.slice(0, -1)), { recursive: true })
    if (parts.at(-1)) writeFileSync(join(dir, path), text)
  }
  return (...names) => names.map((n) => join(dir, n))
}

const lines = (choir, folder) => choir.json('files', 'ls', folder).map((f) => f.id.slice(folder.length + 1)).toSorted()
const filled = (frame, want) => until(async () => `the bar has ${JSON.stringify(await bar(frame).inputValue())}`, async () => (await bar(frame).inputValue()) === want)

test('things are dropped and pasted', async (t) => {
  const choir = await Choir.start(t)
  const { context, faults } = await visitor(await browse(t), choir)
  const page = await claim(context, choir)
  const frame = await desktop(page)
  const drag = await dragger(page, frame)
  const here = [page.url(), frame.url()]
  await frame.evaluate(() => (window.still = true))
  const files = disk(t, {
    'notes.txt': 'dropped\n', 'second.txt': 'two\n',
    'project/README.md': '# It\n', 'project/src/deep/a.ts': 'export {}\n', 'project/.git/HEAD': 'ref\n', 'project/nothing/': '',
    'two\nlines.txt': 'newline\n', 'émoji 🎻.txt': 'emoji\n', 'right\u202eto left.txt': 'marks\n', ['é'.repeat(125) + 'y.txt']: 'long\n',
    'logs/one.log': '1\n', 'logs/two.log': '2\n', 'logs/three.log': '3\n',
  })
  const icon = frame.getByTestId('icon-events')
  const window = frame.locator('[data-testid=window][data-active=true]')

  await t.test('files and whole folders go into inbox, their paths into the prompt bar', async () => {
    await bar(frame).fill('Look at')
    await drag.over(icon, ...files('notes.txt'))
    await frame.getByTestId('drop-here').getByText('Into inbox, and its path into the prompt bar').waitFor()
    await drag.leave()
    await drag.drop(icon, ...files('notes.txt', 'second.txt', 'project'))
    await filled(frame, 'Look at inbox/notes.txt inbox/second.txt inbox/project ')
    const said = frame.getByTestId('not-in')
    await said.getByText('4 files came in.').waitFor()
    assert.match(await said.innerText(), /Left out: .project\/\.git. \(the history of a repository; choir add brings it in\)\./)
    assert.match(await said.innerText(), /Left out: .project\/nothing. \(an empty folder\)\./)
    await said.getByRole('button', { name: 'Close' }).click()
    for (const [path, want] of [['notes.txt', 'dropped\n'], ['second.txt', 'two\n'], ['project/README.md', '# It\n'], ['project/src/deep/a.ts', 'export {}\n']]) assert.equal(choir.cli(['files', 'cat', `inbox/${path}`]), want)
    assert.deepEqual(lines(choir, 'inbox/project'), ['README.md', 'src'])
  })

  await t.test('what is taken gets a number, a folder too, and nothing is written over', async () => {
    await cleared(frame)
    await drag.drop(bar(frame), ...files('notes.txt', 'logs'))
    await filled(frame, 'inbox/notes-2.txt inbox/logs ')
    await cleared(frame)
    await drag.drop(bar(frame), ...files('logs'))
    await filled(frame, 'inbox/logs-2 ')
    assert.deepEqual(lines(choir, 'inbox/logs-2'), ['one.log', 'three.log', 'two.log'])
  })

  await t.test('names that nobody would choose', async () => {
    await cleared(frame)
    await drag.drop(icon, ...files('two\nlines.txt', 'émoji 🎻.txt', 'right\u202eto left.txt', 'é'.repeat(125) + 'y.txt'))
    await filled(frame, `'inbox/two\nlines.txt' 'inbox/émoji 🎻.txt' 'inbox/right\u202eto left.txt' 'inbox/${'é'.repeat(125)}y.txt' `)
    assert.equal(choir.cli(['files', 'cat', 'inbox/two\nlines.txt']), 'newline\n')
    assert.equal(choir.cli(['files', 'cat', `inbox/${'é'.repeat(125)}y.txt`]), 'long\n')
  })

  await t.test('addresses and text', async () => {
    await cleared(frame)
    await give(frame, 'drop', 'main', { types: { 'text/uri-list': '# two of them\r\nhttps://one.example/a\r\nhttps://two.example/b\r\n' } })
    await filled(frame, 'https://one.example/a https://two.example/b ')
    await give(frame, 'drop', 'main', { types: { 'text/plain': 'and some words' } })
    await filled(frame, 'https://one.example/a https://two.example/b and some words ')
    await cleared(frame)
    await frame.evaluate(() => document.activeElement.blur())
    await give(frame, 'paste', 'body', { types: { 'text/plain': 'https://three.example/' } })
    await filled(frame, 'https://three.example/ ')
    assert.equal(await give(frame, 'paste', '[data-testid=prompt]', { types: { 'text/plain': 'left to the browser' } }), false)
    assert.equal(await give(frame, 'drop', '[data-testid=prompt]', { types: { 'text/plain': 'left to the browser' } }), false)
  })

  await t.test('into the folder that Files shows, or the row of one', async () => {
    await cleared(frame)
    await frame.getByTestId('icon-files').click()
    await window.locator('[data-file="inbox"]').click()
    const row = window.locator('[data-file="inbox/project"]')
    await drag.over(row, ...files('second.txt'))
    await frame.getByTestId('drop-here').getByText(/^Into .inbox\/project.$/).waitFor()
    assert.equal(await row.getAttribute('data-over'), 'yes')
    await drag.drop(row, ...files('second.txt'))
    await until('it is in it', () => lines(choir, 'inbox/project').includes('second.txt'))
    assert.equal(await row.getAttribute('data-over'), null)
    await drag.drop(window.locator('[data-file="inbox/notes.txt"]'), ...files('second.txt'))
    await window.locator('[data-file="inbox/second-2.txt"]').waitFor()
    await window.getByRole('button', { name: 'Computer' }).click()
    await drag.drop(window.getByRole('navigation'), ...files('second.txt'))
    await window.locator('[data-file="second.txt"]').waitFor()
    assert.equal(choir.cli(['files', 'cat', 'second.txt']), 'two\n')
    // The list has the focus, as after a click beside its rows.
    await give(frame, 'paste', '[data-app=files] [role=group]', { files: [{ name: 'image.png', text: 'picture', kind: 'image/png' }] })
    await window.locator('[data-file^="pasted 2"][data-file$=".png"]').waitFor()
    assert.equal(await bar(frame).inputValue(), '')
    assert.ok(choir.events().some((e) => e.type === 'file.written' && e.data.path === 'second.txt'))
    await say(frame, '/new')
  })

  await t.test('a picture is pasted into the prompt', async () => {
    await bar(frame).fill('What is this: ?')
    await bar(frame).evaluate((e) => e.setSelectionRange(13, 13))
    assert.equal(await give(frame, 'paste', '[data-testid=prompt]', { files: [{ name: 'image.png', text: 'pixels', kind: 'image/png' }] }), true)
    await until('its path is in it', async () => /^What is this: 'inbox\/pasted \d{4}-\d\d-\d\d \d\d\.\d\d\.png' {1,2}\?$/.test(await bar(frame).inputValue()))
    const [, path] = /'(.*)'/.exec(await bar(frame).inputValue())
    assert.equal(choir.cli(['files', 'cat', path]), 'pixels')
    // What an office program copies is text that has a picture, too.
    assert.equal(await give(frame, 'paste', '[data-testid=prompt]', { files: [{ name: 'image.png', text: 'pixels', kind: 'image/png' }], types: { 'text/plain': 'a', 'text/html': '<b>a</b>' } }), false)
  })

  await t.test('into the text of a run, and not into what only shows', async () => {
    await say(frame, 'Make the desktop background #0b1526')
    const run = window.getByTestId('run')
    await run.and(frame.locator('[data-status=done]')).waitFor()
    const steer = window.getByLabel('Go on from this run')
    await steer.fill('Use')
    await drag.drop(run, ...files('notes.txt'))
    await until(async () => `it has ${await steer.inputValue()}`, async () => (await steer.inputValue()) === 'Use inbox/notes-3.txt ')
    assert.equal(await bar(frame).inputValue(), '')
    await frame.getByTestId('icon-events').click()
    const filter = window.getByLabel('Filter')
    await filter.waitFor()
    await drag.over(filter, ...files('notes.txt'))
    const no = frame.getByTestId('drop-here').and(frame.locator('[data-no=true]'))
    await no.getByText('Events shows what has happened. Drop it on the desktop or the prompt bar.').waitFor()
    const effect = () => frame.evaluate(() => {
      const data = new DataTransfer()
      data.items.add(new File(['x'], 'x'))
      const e = new DragEvent('dragover', { dataTransfer: data, bubbles: true, cancelable: true })
      document.querySelector('[data-app=events] input').dispatchEvent(e)
      return [e.defaultPrevented, e.dataTransfer.dropEffect]
    })
    assert.deepEqual(await effect(), [true, 'none'])
    await drag.leave()
    assert.equal(await give(frame, 'drop', '[data-app=events] input', { files: [{ name: 'x', text: 'x', kind: '' }] }), true)
    await frame.getByTestId('toast').getByText('Events shows what has happened. Drop it on the desktop or the prompt bar.').waitFor()
    await frame.evaluate(() => window.__choir.stores.connection.setState({ readOnly: true }))
    await give(frame, 'drop', 'main', { files: [{ name: 'x', text: 'x', kind: '' }] })
    await frame.getByTestId('toast').getByText('This session may only read.').waitFor()
    await frame.evaluate(() => window.__choir.stores.connection.setState({ readOnly: false }))
    await say(frame, '/new')
  })

  await t.test('nothing led away, and nothing was complained about', async () => {
    await drag.drop(page.locator('header.frame #name'), ...files('notes.txt'))
    const kept = (at) => at.evaluate(() => {
      const data = new DataTransfer()
      data.items.add(new File(['x'], 'x'))
      return ['dragover', 'drop'].map((type) => !document.querySelector('header').dispatchEvent(new DragEvent(type, { dataTransfer: data, bubbles: true, cancelable: true })))
    })
    assert.deepEqual(await kept(page), [true, true])
    await page.locator('#notes').getByText('Drop it on the desktop below').waitFor()
    assert.deepEqual([page.url(), frame.url()], here)
    assert.equal(context.pages().length, 1)
    assert.equal(await frame.evaluate(() => window.still), true)
    assert.deepEqual(faults, [])
  })
})

test('bringing things in takes a while, ends early, or fails', async (t) => {
  const { choir, context, page } = await opened(t)
  const frame = await desktop(page)
  const drag = await dragger(page, frame)
  const files = disk(t, { 'a.txt': 'a\n', 'b.txt': 'b\n', 'c.txt': 'c\n', 'set/1': '1\n', 'set/2': '2\n', 'set/3': '3\n' })
  const icon = frame.getByTestId('icon-events')
  const band = frame.getByTestId('bringing-in')
  const said = frame.getByTestId('not-in')
  const seen = []
  // What is done with the nth file that is sent.
  let nth = () => null
  await context.route('**/_choir/files?*', async (route) => {
    seen.push(new URL(route.request().url()).searchParams.get('name'))
    const other = nth(seen.length)
    if (other) await other(route)
    else await route.continue()
  })
  const begin = (how) => {
    seen.length = 0
    nth = how
  }

  await t.test('without the part that brings things in, until the connection is back', async () => {
    await context.route('**/things/bring*', (route) => route.abort())
    await drag.drop(icon, ...files('a.txt'))
    await frame.getByTestId('toast').getByText('Try it again with a connection.').waitFor()
    await context.unroute('**/things/bring*')
    await drag.drop(icon, ...files('a.txt'))
    await filled(frame, 'inbox/a.txt ')
    await cleared(frame)
  })

  await t.test('many: the first paths are in the text, one drop waits for the other', async (t2) => {
    const names = Array.from({ length: 25 }, (_, i) => `many-${String(i).padStart(2, '0')}`)
    let go
    const held = new Promise((r) => (go = r))
    begin((n) => n === 1 && ((route) => held.then(() => route.continue())))
    await drag.drop(icon, ...disk(t2, Object.fromEntries(names.map((n) => [n, n])))(...names))
    await band.waitFor()
    await drag.drop(icon, ...files('b.txt'))
    await band.getByText('; 1 more waiting').waitFor()
    go()
    await until(async () => `the bar has ${await bar(frame).inputValue()}`, async () => (await bar(frame).inputValue()).split(' ').length === 22)
    assert.ok((await bar(frame).inputValue()).endsWith('inbox/b.txt '))
    assert.match(await said.innerText(), /^25 files came in.\s[^]*The first 20 paths are in the text; all of them are in inbox\./)
    assert.equal(lines(choir, 'inbox').filter((n) => n.startsWith('many-')).length, 25)
    await said.getByRole('button', { name: 'Close' }).click()
    await cleared(frame)
  })

  await t.test('how far it is, Cancel, and the rest', async () => {
    let go
    const held = new Promise((r) => (go = r))
    begin((n) => n === 2 && (async (route) => held.then(() => route.abort())))
    await drag.drop(icon, ...files('set'))
    await band.getByText(/^Bringing in 2 of 3, 2 bytes of 6 bytes/).waitFor()
    assert.deepEqual(await axe(frame), [])
    await band.getByRole('button', { name: 'Cancel' }).click()
    await said.getByText('Cancelled: 1 file came in, 2 did not.').waitFor()
    go()
    await filled(frame, 'inbox/set ')
    assert.equal(lines(choir, 'inbox/set').length, 1)
    begin(() => null)
    await said.getByRole('button', { name: 'Bring in the rest' }).click()
    await said.waitFor({ state: 'detached' })
    await until('all are in', () => lines(choir, 'inbox/set').length === 3)
    await cleared(frame)
  })

  await t.test('no connection, and the rest when it is back', async () => {
    begin((n) => n >= 2 && ((route) => route.abort()))
    await drag.drop(icon, ...files('a.txt', 'b.txt', 'c.txt'))
    await said.getByText('1 file came in, 2 did not. The connection was lost. What came in before is safe.').waitFor()
    assert.deepEqual(seen, ['a.txt', 'b.txt'])
    begin(() => null)
    // Another drop takes away nothing of what did not come in.
    await drag.drop(icon, ...files('set'))
    await until('it is in', async () => (await bar(frame).inputValue()).endsWith('inbox/set-2 '))
    await said.getByRole('button', { name: 'Bring in the rest' }).click()
    await until('the others are in', async () => (await bar(frame).inputValue()).endsWith('inbox/c.txt '))
    assert.equal(choir.cli(['files', 'cat', 'inbox/c.txt']), 'c\n')
    await cleared(frame)
  })

  await t.test('a full disk ends it, a file that is refused does not', async () => {
    const answer = (status, code, detail, hint) => (route) => route.fulfill({ status, contentType: 'application/problem+json', body: JSON.stringify({ code, detail, hint }) })
    begin((n) => n === 1 && answer(507, 'exhausted', 'the disk is full', 'Free some space.'))
    await drag.drop(icon, ...files('a.txt', 'b.txt'))
    await said.getByText('Nothing came in. the disk is full. Free some space.').waitFor()
    assert.deepEqual(seen, ['a.txt'])
    await said.getByRole('button', { name: 'Close' }).click()
    begin((n) => n === 1 && answer(422, 'invalid', 'name: is odd'))
    await drag.drop(icon, ...files('a.txt', 'b.txt'))
    await said.getByText('1 file came in.').waitFor()
    assert.match(await said.innerText(), /Left out: .a\.txt. \(name: is odd\)\./)
    await said.getByRole('button', { name: 'Close' }).click()
    await cleared(frame)
  })

  await t.test('what is too large, and how it gets in', async (t2) => {
    begin(() => null)
    const [large] = disk(t2, { 'large.bin': '' })('large.bin')
    truncateSync(large, (64 << 20) + 1)
    await drag.drop(icon, large, ...files('a.txt'))
    await said.getByText('1 file came in.').waitFor()
    assert.match(await said.innerText(), /Left out: .large\.bin. \(larger than the 64 MB that a page may bring in for now; choir files put brings it in\)/)
    assert.deepEqual(seen, ['a.txt'])
  })
})

test('pictures of bringing things in', async (t) => {
  const { choir, context, page } = await opened(t)
  const frame = await desktop(page)
  const drag = await dragger(page, frame)
  const files = disk(t, { 'one.txt': '1\n', 'set/left.txt': 'l\n', 'set/right\u202eto left.txt': 'r\n', 'set/.git/HEAD': 'x\n' })
  choir.put('inbox/photos/sea.txt', 'sea\n')
  choir.put('inbox/readme.md', '# Read\n')
  const g = gallery()
  let go
  await context.route('**/_choir/files?*name=right*', (route) => new Promise((r) => (go = r)).then(() => route.abort()))
  for (const [theme, scheme] of [['night', 'dark'], ['day', 'light']]) {
    await say(frame, `/theme ${theme}`)
    await frame.locator(`html[data-scheme=${scheme}]`).waitFor()
    await say(frame, '/new')
    for (const [width, height] of sizes) {
      await page.setViewportSize({ width, height })
      await drag.over(bar(frame), ...files('one.txt'))
      await frame.getByTestId('drop-here').waitFor()
      await g.one(page, frame, `${width}-${theme}-things-desktop`)
      await drag.leave()
    }
    await page.setViewportSize({ width: 1440, height: 900 })
    await say(frame, '/open files')
    const shown = frame.locator('[data-testid=window][data-active=true]')
    await shown.getByRole('button', { name: 'Computer' }).click()
    await shown.locator('[data-file="inbox"]').click()
    const row = shown.locator('[data-file="inbox/photos"]')
    for (const [width, height] of sizes) {
      await page.setViewportSize({ width, height })
      await row.waitFor()
      await drag.over(row, ...files('one.txt'))
      await g.one(page, frame, `${width}-${theme}-things-row`)
      await drag.over(shown.getByRole('navigation'), ...files('one.txt'))
      await g.one(page, frame, `${width}-${theme}-things-folder`)
      await drag.leave()
    }
    await page.setViewportSize({ width: 1440, height: 900 })
    await say(frame, '/open events')
    const list = frame.locator('[data-testid=window][data-active=true]')
    await list.getByLabel('Filter').waitFor()
    await drag.over(list.getByLabel('Filter'), ...files('one.txt'))
    await frame.getByTestId('drop-here').waitFor()
    await g.all(page, frame, `${theme}-things-no`)
    await drag.leave()
    await say(frame, '/new')
    await drag.drop(bar(frame), ...files('one.txt', 'set'))
    await frame.getByTestId('bringing-in').getByText(/^Bringing in . of 3/).waitFor()
    await g.all(page, frame, `${theme}-things-progress`)
    go()
    await frame.getByTestId('not-in').waitFor()
    await g.all(page, frame, `${theme}-things-rest`)
    await frame.getByRole('button', { name: 'Close', exact: true }).click()
    await cleared(frame)
  }
  g.clean(t)
})
