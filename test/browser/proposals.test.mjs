// Shows that when a task and its user edit the same lines of a document, the user's text stays, and
// the task's waits in the document's window until it is accepted or dismissed.

import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'
import { axe, browse, Choir, claim, desktop, modelServer, out, say, until, visitor } from './harness.mjs'

test('proposals', async (t) => {
  const model = await modelServer(t, { turns: [first(), ...edits('accept'), ...edits('dismiss')] })
  const choir = await Choir.start(t, { env: { ANTHROPIC_API_KEY: 'sk-ant-test-0123456789abcdef', ANTHROPIC_BASE_URL: model.url, CHOIR_MODEL: 'anthropic/claude-sonnet-4-6' } })
  const browser = await browse(t)
  const { context, faults } = await visitor(browser, choir)
  const page = await claim(context, choir)
  const frame = await desktop(page)

  const ended = (prompt) => until(`the run “${prompt}” has ended`, () => choir.json('runs').find((r) => r.prompt === prompt && ['done', 'failed', 'cancelled'].includes(r.status)))
  const events = (type) => choir.events().filter((e) => e.type === type)
  const active = frame.locator('[data-testid=window][data-active=true]')

  await say(frame, 'Begin a plan')
  const begun = await ended('Begin a plan')
  assert.equal(begun.status, 'done', JSON.stringify(begun, null, 1))
  const { path } = events('document.revised').find((e) => e.subject === begun.document).data
  const read = () => choir.cli(['files', 'cat', path])
  const original = read()
  assert.match(original, /\n## Notes\n/, original)

  /** Lets a task edit the notes while the user does, and shows what waits for them. */
  const collide = async (round, mine) => {
    const prompt = `Add the ${round} words to ${path}`
    await say(frame, '/new') // a toast says only what no window shows
    await say(frame, prompt)
    await until('the task has edited the document', () => events('tool.returned').find((e) => e.data.name === 'edit' && e.data.ok && e.data.output && e.run === choir.json('runs')[0].id))
    choir.put(path, read().replace('## Notes\n', `## Notes\n\n${mine}\n`))
    model.release(round)
    const run = await ended(prompt)
    assert.equal(run.status, 'done', JSON.stringify(choir.json('runs', run.id), null, 1))
    assert.ok(choir.json('runs', run.id).tasks[0].summary.includes(`Waiting for the user as proposals: ${path}`), 'the Director is told')
    assert.match(read(), new RegExp(mine), 'what the user wrote stays')
    assert.doesNotMatch(read(), new RegExp(`The ${round} words`), 'and what the task wrote is not there')
    const toast = frame.getByTestId('toast').filter({ hasText: 'The Associate proposes a change' }).last()
    await toast.getByRole('button', { name: 'Show' }).click()
    await active.getByText('Begin a plan').first().waitFor()
    const look = active.getByRole('button', { name: 'Look' })
    const card = active.getByTestId('proposal')
    await look.or(card).first().waitFor()
    if (await look.isVisible()) await look.click()
    await card.getByText(`The ${round} words`).waitFor()
    await card.getByText(mine).waitFor()
    return { card, run }
  }

  await t.test('one is accepted', async () => {
    const { card, run } = await collide('accept', 'Mine, about the book.')
    const said = (await card.innerText()).replaceAll(/\s+/g, ' ')
    assert.match(said, /The Associate proposes a change.*In one place it would replace what was written since/, said)
    await page.screenshot({ path: join(out, 'proposal.png') })
    assert.deepEqual(await axe(frame), [])
    await card.getByRole('button', { name: 'Accept' }).click()
    await card.waitFor({ state: 'detached' })
    await active.getByText('The accept words').waitFor()
    assert.match(read(), /## Notes\n\nThe accept words\.\n/)
    const [proposed] = events('document.proposed')
    const [resolved] = events('proposal.resolved')
    const revised = events('document.revised').filter((e) => e.subject === begun.document).at(-1)
    assert.equal(proposed.run, run.id)
    assert.match(proposed.source, /\/associate$/)
    assert.equal(resolved.data.resolution, 'accepted')
    assert.equal(resolved.data.revision, revised.data.revision)
    assert.match(revised.source, /\/app$/)
    assert.equal(revised.causation, proposed.id)
    assert.ok(events('document.revised').some((e) => e.data?.body?.includes('Mine, about the book.')), 'what it replaced is in the history')
  })

  await t.test('one is still there after a reload, and dismissed', async () => {
    await collide('dismiss', 'Mine again.')
    const kept = read()
    await page.reload()
    const again = await desktop(page)
    const mine = again.locator('[data-testid=window][data-active=true]')
    await mine.getByRole('button', { name: 'Look' }).click()
    await mine.getByTestId('proposal').getByRole('button', { name: 'Dismiss' }).click()
    await mine.getByTestId('proposal').waitFor({ state: 'detached' })
    assert.equal(read(), kept)
    assert.equal(events('proposal.resolved').at(-1).data.resolution, 'dismissed')
    assert.equal(events('document.proposed').length, 2)
    assert.equal(events('proposal.resolved').length, 2)
  })

  await t.test('nothing complained', () => assert.deepEqual(faults, []))
})

// A run that only makes its document.
function first() {
  return { role: 'director', calls: [{ name: 'report', args: { status: 'done', summary: 'The plan is begun.' } }] }
}

// A run whose task writes into a document, and finishes when it is allowed to.
function edits(round) {
  const path = `${round}_path`
  return [
    {
      role: 'director', capture: { [path]: '(artifacts/runs/[a-z0-9-]+\\.md)' },
      calls: [{ name: 'delegate', args: { tasks: [{ kind: 'agent', goal: `Add a line to the notes of {{${path}}}`, tools: ['read', 'edit'], verify: { profile: 'none' } }] } }],
    },
    { role: 'associate', calls: [{ name: 'read', args: { path: `{{${path}}}` } }] },
    { role: 'associate', calls: [{ name: 'edit', args: { path: `{{${path}}}`, old: '## Notes\n', new: `## Notes\n\nThe ${round} words.\n` } }] },
    { role: 'associate', hold: round, calls: [{ name: 'finish', args: { summary: 'Added a line.', status: 'ok' } }] },
    { role: 'director', calls: [{ name: 'report', args: { status: 'done', summary: 'A line was added.' } }] },
  ]
}
