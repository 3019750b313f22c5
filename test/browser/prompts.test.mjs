// Shows that a prompt changes the desktop while one looks at it, and that time travel takes that
// back, on the page that Vite serves and without a reload.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { background, browse, Choir, claim, desktop, drawn, modelServer, say, until, visitor } from './harness.mjs'

test('prompts, by rehearsal', (t) => recolours(t))

test('prompts, by a model server', async (t) => {
  const theme = drawn()
  const shell = drawn()
  const model = await modelServer(t, script, { theme, shell })
  const env = { ANTHROPIC_API_KEY: 'sk-ant-test-0123456789abcdef', ANTHROPIC_BASE_URL: model.url, CHOIR_MODEL: 'anthropic/claude-sonnet-4-6' }
  await recolours(t, { theme, shell, env, prompts: { theme: 'Something calmer behind the windows, please', shell: 'And now the same, but in how the shell is made' } })
  assert.ok(model.requests.length >= 8, `${model.requests.length} requests`)
  assert.ok(model.requests.every((r) => r.wire === 'anthropic'))
})

async function recolours(t, { theme = drawn(), shell = drawn(), env = {}, prompts } = {}) {
  prompts ??= { theme: `change the background to ${theme}`, shell: `change the shell background to ${shell}` }
  const choir = await Choir.start(t, { env })
  const browser = await browse(t)
  const { context, faults } = await visitor(browser, choir)
  const page = await claim(context, choir)
  const frame = await desktop(page)
  await frame.evaluate(() => (window.marker = 'still here'))
  await page.evaluate(() => (window.marker = 'still here'))
  const first = await background(frame)
  let before = first

  const shows = (colour) => until(async () => `the background ${colour} (it is ${await background(frame)})`, async () => (await background(frame)) === colour)
  const ended = async (prompt) => {
    const run = await until(`the run “${prompt}” has ended`, () => choir.json('runs').find((r) => r.prompt === prompt && ['done', 'failed', 'cancelled'].includes(r.status)))
    return choir.json('runs', run.id)
  }
  for (const part of ['theme', 'shell']) {
    const colour = { theme, shell }[part]
    await t.test(`${part}: the prompt recolours it`, async () => {
      const asked = Date.now()
      await say(frame, prompts[part])
      await shows(colour)
      t.diagnostic(`${part}: ${Date.now() - asked} ms from Enter to the computed style`)
      const run = await ended(prompts[part])
      t.diagnostic(`${part}: ${Date.now() - asked} ms from Enter to the run's end: ${run.status}, ${run.verified}`)
      assert.equal(run.status, 'done', JSON.stringify(run, null, 1))
      assert.equal(await background(frame), colour, 'it stays after the run has ended')

      const shown = frame.locator('[data-testid=window][data-active=true] [data-testid=run]')
      await shown.and(frame.locator('[data-status=done]')).waitFor()
      const words = await shown.getByTestId('run-status').innerText()
      assert.equal(run.verified, 'pass', JSON.stringify(run.tasks, null, 1))
      assert.match(words, /done, verified/)
      assert.ok(run.tasks.length > 0 && run.tasks.every((task) => task.verification === 'pass'), 'nothing unknown is called done')

      const made = choir.json('checkpoints').find((c) => c.run === run.id && c.kind === 'task')
      assert.equal(made?.verified, 'pass', `a verified checkpoint of the run: ${JSON.stringify(choir.json('checkpoints'), null, 1)}`)
    })

    await t.test(`${part}: restoring brings the old colour back, undo the new one`, async () => {
      const [run] = choir.json('runs')
      const restores = () => choir.json('checkpoints').filter((c) => c.kind === 'restore').length
      const earlier = restores()
      const back = choir.json('checkpoints').find((c) => c.run !== run.id) // the newest checkpoint from before the run
      await frame.getByTestId('icon-timetravel').click()
      await frame.locator(`[data-checkpoint="${back.id}"]`).click()
      await frame.getByTestId('restore').click()
      await frame.getByTestId('restore-go').click()
      await shows(before)
      // The files are back before the restore is a checkpoint of its own. The checkpoints of the
      // part before are in the list already.
      await until('the restore is in the history', () => restores() > earlier)
      await until('and in its list', async () => (await frame.locator('[data-testid=checkpoint][data-kind=restore]').count()) > earlier)
      assert.equal(choir.json('checkpoints')[0].kind, 'restore', 'history goes on, it is not rewritten')
      assert.ok(choir.json('checkpoints').some((c) => c.run === run.id), 'what was undone is still there')
      await frame.getByTestId('undo').click()
      await frame.getByTestId('restore-go').click()
      await shows(colour)
      assert.equal(await frame.evaluate(() => window.marker), 'still here', 'the desktop was not reloaded')
      assert.equal(await page.evaluate(() => window.marker), 'still here', 'the console was not reloaded')
    })
    before = colour
  }

  await t.test('a reload shows the same', async () => {
    await page.reload()
    assert.equal(await background(await desktop(page)), shell)
  })
  await t.test('nothing complained', () => assert.deepEqual(faults, []))
}

// This is what a model would do, played turn by turn.
const script = {
  turns: [
    ...change({
      objective: 'The desktop is calmer', path: 'artifacts/system/theme.json',
      capture: { old: '"background":\\s*"(#[0-9a-f]{6})"' }, edit: { old: '"background": "{{old}}"', new: '"background": "{{theme}}"' },
    }),
    ...change({
      objective: 'The shell has the colour', path: 'choiros/src/shell/desktop.css',
      capture: {}, edit: { old: '--shell-background: var(--choir-background);', new: '--shell-background: {{shell}};' },
    }),
  ],
}

function change({ objective, path, capture, edit }) {
  return [
    {
      role: 'director', text: 'I will change one value and check it.',
      calls: [
        { name: 'revise_plan', args: { objective, plan: [{ text: `Change ${path}` }] } },
        { name: 'delegate', args: { tasks: [{ kind: 'agent', goal: `In ${path}, set the background`, tools: ['read', 'edit'], verify: { profile: 'smoke' } }] } },
      ],
    },
    { role: 'associate', calls: [{ name: 'read', args: { path } }] },
    { role: 'associate', capture, calls: [{ name: 'edit', args: { path, ...edit } }] },
    { role: 'associate', calls: [{ name: 'finish', args: { summary: `Changed ${path}.`, status: 'ok' } }] },
    { role: 'director', calls: [{ name: 'report', args: { status: 'done', summary: `The background is set in \`${path}\`.` } }] },
  ]
}
