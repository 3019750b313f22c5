// Shows that the console's frame reports a shell that was broken by an edit, and takes the edit
// back.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { browse, Choir, claim, desktop, modelServer, say, until, visitor } from './harness.mjs'

const main = 'choiros/src/main.tsx'

test('a broken desktop', async (t) => {
  const choir = await Choir.start(t)
  const { context } = await visitor(await browse(t), choir)
  const page = await claim(context, choir)
  await desktop(page)
  const good = choir.cli(['files', 'cat', main])
  const card = page.getByRole('alertdialog', { name: 'The desktop is down' })

  for (const [what, source, words] of [
    ['throws', `throw new Error('out of order today')\n${good}`, /out of order today/],
    ['does not parse', `${good}\nconst = {\n`, /main\.tsx|loaded/],
  ]) {
    await t.test(`its source ${what}: Rewind is offered and brings it back`, async () => {
      choir.put(main, source)
      await page.reload()
      await card.waitFor()
      assert.match(await card.innerText(), words)
      assert.match(await card.innerText(), /Checkpoint [0-9a-f]{8} is the last one that worked/)
      await page.locator('#state[data-state=broken]').waitFor()
      const button = card.getByRole('button', { name: 'Rewind' })
      assert.ok(await button.evaluate((e) => e === document.activeElement), 'the one button has the cursor')
      assert.equal(choir.cli(['files', 'cat', main]), source, 'nobody’s own edit is taken back without asking')
      await button.click()
      const frame = await desktop(page)
      await frame.getByTestId('desktop').waitFor()
      await card.waitFor({ state: 'hidden' })
      await page.locator('#state[data-state=awake]').waitFor()
      assert.equal(choir.cli(['files', 'cat', main]), good)
      const [restore, ...before] = choir.json('checkpoints')
      assert.equal(restore.kind, 'restore')
      assert.ok(before.some((c) => c.kind === 'safety'), 'what was there is kept, so it can be undone')
    })
  }

  await t.test('an app that throws leaves the desktop standing', async () => {
    choir.put('choiros/src/apps/welcome/Welcome.tsx', "export default function Welcome() {\n  throw new Error('no welcome today')\n}\n")
    const frame = await desktop(page)
    await frame.getByText('no welcome today').first().waitFor()
    await frame.getByTestId('icon-events').click()
    await frame.getByTestId('event').first().waitFor()
    assert.ok(await card.isHidden())
  })
})

test('a task’s edit breaks the desktop while it works', async (t) => {
  const shell = 'choiros/src/shell/Desktop.tsx'
  const words = 'this is more than I can take'
  const model = await modelServer(t, {
    turns: [
      {
        role: 'director',
        calls: [
          { name: 'revise_plan', args: { objective: 'Another desktop', plan: [{ text: `Change ${shell}` }] } },
          { name: 'delegate', args: { tasks: [{ kind: 'agent', goal: `In ${shell}, change something`, tools: ['read', 'edit'], verify: { profile: 'smoke' } }] } },
        ],
      },
      { role: 'associate', calls: [{ name: 'read', args: { path: shell } }] },
      { role: 'associate', calls: [{ name: 'edit', args: { path: shell, old: '  useKeys()\n', new: `  if (name) throw new Error('${words}')\n  useKeys()\n` } }] },
      { role: 'associate', hold: 'broken', calls: [{ name: 'finish', args: { summary: 'It is another.', status: 'ok' } }] },
      { role: 'director', calls: [{ name: 'report', args: { status: 'done', summary: 'Another.' } }] },
    ],
  })
  const choir = await Choir.start(t, { env: { ANTHROPIC_API_KEY: 'sk-ant-test-0123456789abcdef', ANTHROPIC_BASE_URL: model.url, CHOIR_MODEL: 'anthropic/claude-sonnet-4-6' } })
  const { context } = await visitor(await browse(t), choir)
  const page = await claim(context, choir)
  const frame = await desktop(page)
  const good = choir.cli(['files', 'cat', shell])
  const card = page.getByRole('alertdialog', { name: 'The desktop is down' })

  await t.test('no check has passed it, so it goes back by itself, and says so once the new page is well', async () => {
    await say(frame, 'Make it another')
    await card.waitFor()
    assert.match(await card.innerText(), new RegExp(words))
    assert.match(await card.getByRole('button', { name: /^Rewind/ }).innerText(), /^Rewind \(\d\)$|^Rewinding/)
    await page.getByRole('status').getByText('went back by itself').waitFor()
    await until('a fresh page took the place of the one that broke', () => frame.isDetached())
    await (await desktop(page)).getByTestId('desktop').waitFor()
    await page.locator('#state[data-state=awake], #state[data-state=working]').waitFor()
    assert.equal(choir.cli(['files', 'cat', shell]), good)
    model.release('broken')
  })
})

test('a task’s edit breaks the desktop after it was verified', async (t) => {
  const shell = 'choiros/src/shell/Desktop.tsx'
  const prompt = 'Let the desktop know when something is done'
  const words = 'done is more than I can take'
  const model = await modelServer(t, {
    turns: [
      {
        role: 'director',
        calls: [
          { name: 'revise_plan', args: { objective: 'The desktop knows', plan: [{ text: `Change ${shell}` }] } },
          { name: 'delegate', args: { tasks: [{ kind: 'agent', goal: `In ${shell}, look at the runs`, tools: ['read', 'edit'], verify: { profile: 'smoke' } }] } },
        ],
      },
      { role: 'associate', calls: [{ name: 'read', args: { path: shell } }] },
      // The host checks no run that is done. The user's page does, as soon as exactly this run is.
      {
        role: 'associate',
        calls: [
          { name: 'edit', args: { path: shell, old: "import { front,", new: "import { useRuns } from '../stores/runs'\nimport { front," } },
          { name: 'edit', args: { path: shell, old: '  useKeys()\n', new: `  const done = useRuns((s) => Object.values(s.runs).some((r) => r.status === 'done'))\n  if (done) throw new Error('${words}')\n  useKeys()\n` } },
        ],
      },
      { role: 'associate', calls: [{ name: 'finish', args: { summary: 'It knows.', status: 'ok' } }] },
      { role: 'director', calls: [{ name: 'report', args: { status: 'done', summary: 'The desktop knows.' } }] },
    ],
  })
  const choir = await Choir.start(t, { env: { ANTHROPIC_API_KEY: 'sk-ant-test-0123456789abcdef', ANTHROPIC_BASE_URL: model.url, CHOIR_MODEL: 'anthropic/claude-sonnet-4-6' } })
  const { context } = await visitor(await browse(t), choir)
  const page = await claim(context, choir)
  const frame = await desktop(page)
  const good = choir.cli(['files', 'cat', shell])
  const card = page.getByRole('alertdialog', { name: 'The desktop is down' })
  let edited = ''

  await t.test('it is verified, published and reported, and then the page throws', async () => {
    await say(frame, prompt)
    await card.waitFor()
    const [run] = choir.json('runs')
    assert.equal(run.status, 'done', JSON.stringify(run, null, 1))
    assert.equal(run.verified, 'pass')
    assert.ok(choir.json('checkpoints').some((c) => c.run === run.id && c.kind === 'task' && c.verified === 'pass'))
    assert.match(await card.innerText(), new RegExp(words))
    const [, good] = /Checkpoint ([0-9a-f]{8}) is the last one that worked/.exec(await card.innerText()) ?? []
    const [breaks] = choir.json('checkpoints').filter((c) => c.run === run.id && c.kind === 'task')
    assert.ok(good && good !== breaks.id.slice(0, 8), 'what breaks is not good, verified or not')
    assert.equal(await card.getByRole('button', { name: /^Rewind/ }).innerText(), 'Rewind', 'no time is counted down: a check has passed it')
    await card.getByRole('button', { name: 'Leave it as it is' }).waitFor()
    edited = choir.cli(['files', 'cat', shell])
    assert.ok(edited.includes(words))
  })
  await t.test('it goes back when it is told to, and says so when the new page has painted', async () => {
    await card.getByRole('button', { name: 'Rewind' }).click()
    await page.getByRole('status').getByText('The desktop is back').waitFor()
    await until('a fresh page took the place of the one that broke', () => frame.isDetached())
    await (await desktop(page)).getByTestId('desktop').waitFor()
    await page.locator('#state[data-state=awake]').waitFor()
    await card.waitFor({ state: 'hidden' })
    assert.equal(choir.cli(['files', 'cat', shell]), good)
    const [restore, safety] = choir.json('checkpoints')
    assert.deepEqual([restore.kind, safety.kind], ['restore', 'safety'])
    assert.equal(choir.events().filter((e) => e.type === 'desktop.broke').length, 1)
  })
  await t.test('the frame knows that there is nothing better to go back to', async () => {
    await page.locator('#rewind').click()
    const ask = page.getByRole('dialog', { name: 'Rewind the desktop' })
    await ask.getByText('already is as it was').waitFor()
    await ask.getByRole('button', { name: 'Keep it as it is' }).click()
  })
  await t.test('it can be undone, and then it is the user’s own: nothing goes back without them', async () => {
    const now = await desktop(page)
    await now.getByTestId('icon-timetravel').click()
    await now.getByTestId('undo').click()
    await now.getByTestId('restore-go').click()
    await card.waitFor()
    assert.equal(choir.cli(['files', 'cat', shell]), edited)
    const button = card.getByRole('button', { name: 'Rewind' })
    assert.equal(await button.innerText(), 'Rewind', 'no time is counted down')
    await button.click()
    await (await desktop(page)).getByTestId('desktop').waitFor()
    await page.locator('#state[data-state=awake]').waitFor()
    assert.equal(choir.cli(['files', 'cat', shell]), good)
  })
})

test('source that no page can tell of is told at once, with file and line', async (t) => {
  const choir = await Choir.start(t)
  const { context } = await visitor(await browse(t), choir)
  const page = await claim(context, choir)
  await desktop(page)
  const band = page.locator('#source')
  for (const [file, text, words] of [
    ['package.json', '{\n  "name": "x",\n  oops\n}\n', /package\.json, line 3/],
    ['index.html', '<!doctype html>\n<p>nothing</p>\n', /index\.html has no element with id="root"/],
    ['vite.config.ts', "\n\nthrow new Error('no dev server today')\n", /vite\.config\.ts: no dev server today/],
  ]) {
    await t.test(file, async () => {
      const good = choir.cli(['files', 'cat', `choiros/${file}`])
      choir.put(`choiros/${file}`, text)
      await band.getByText(words).waitFor()
      choir.put(`choiros/${file}`, good)
      await band.waitFor({ state: 'hidden' })
    })
  }
  await t.test('main.tsx, and Time Travel is usable meanwhile', async () => {
    const good = choir.cli(['files', 'cat', main])
    choir.put(main, `${good}\nconst = {\n`)
    await page.reload()
    const card = page.getByRole('alertdialog', { name: 'The desktop is down' })
    await card.getByText(/src\/main\.tsx, line \d+: \S/).waitFor()
    await card.getByRole('button', { name: 'Open the kept desktop' }).click()
    const kept = await desktop(page, 'build')
    await kept.getByTestId('icon-timetravel').click()
    await kept.getByTestId('checkpoint').first().waitFor()
    assert.equal(await page.locator('#state').getAttribute('data-state'), 'broken')
    choir.put(main, good)
    await page.locator('#account').click()
    await page.getByRole('button', { name: 'Reload the desktop' }).click()
    await desktop(page)
    await page.locator('#state[data-state=awake]').waitFor()
  })
})
