// Shows work that is looked at before it is published: a comment on a line goes back to the loop, a file is left out,
// and what is taken is live and nothing else. Pictures of it are kept in out/.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { browse, Choir, claim, desktop, gallery, modelServer, say, sizes, until, visitor } from './harness.mjs'

const lines = Array.from({ length: 30 }, (_, i) => `Line ${i + 1} of a poem about the sea.`)
const edit = (old, text) => ({ name: 'edit', args: { path: 'workspace/poem.md', old, new: text } })

test('work is looked at before it is published', async (t) => {
  const model = await modelServer(t, {
    turns: [
      { role: 'associate', match: 'Improve the poem', calls: [edit('Line 3 of a poem', 'The third line of a poem')] },
      { role: 'associate', match: 'Improve the poem', calls: [edit('Line 25 of a poem', 'The twenty-fifth line of a poem')] },
      { role: 'associate', match: 'Improve the poem', calls: [{ name: 'write', args: { path: 'workspace/notes.md', content: 'What I thought while I wrote.\n' } }] },
      { role: 'associate', match: 'Improve the poem', calls: [{ name: 'finish', args: { status: 'ok', summary: 'The poem is better now.' } }] },
      { role: 'associate', match: 'the user has looked at your work', calls: [edit('The third line', 'Line three')] },
      { role: 'associate', match: 'Improve the poem', calls: [{ name: 'finish', args: { status: 'ok', summary: 'As you said.' } }] },
    ],
  })
  const choir = await Choir.start(t, {
    env: { ANTHROPIC_API_KEY: 'sk-ant-test-0123456789abcdef', ANTHROPIC_BASE_URL: model.url, CHOIR_MODEL: 'anthropic/claude-sonnet-4-6', CHOIR_LOOPS_REVIEW: 'true', CHOIR_LOOPS_DIRECT_WORDS: '30' },
  })
  const { context, faults } = await visitor(await browse(t), choir)
  const page = await claim(context, choir)
  let frame, run, card
  const see = async () => {
    frame = await desktop(page)
    run = frame.locator('[data-testid=window][data-active=true] [data-testid=run]')
    card = run.getByTestId('review')
  }
  await see()
  choir.put('workspace/poem.md', lines.join('\n') + '\n')
  const live = () => choir.cli(['files', 'cat', 'workspace/poem.md'])

  await say(frame, 'Improve the poem')
  await card.getByText('2 changed paths wait until you have looked at them').waitFor()
  assert.equal(live(), lines.join('\n') + '\n', 'nothing is live')

  // The console counts it, and leads to it.
  const bell = (n) => page.locator(n ? `#bell[aria-label="Approvals, ${n} waiting"]` : '#bell[aria-label="Approvals"]').waitFor()
  await bell(1)
  await frame.locator('[data-testid=window][data-active=true]').getByRole('button', { name: /^Close/ }).click()
  await page.locator('#bell').click()
  await page.getByRole('region', { name: 'Approvals' }).getByText('2 changed paths wait until you have looked at them').waitFor()
  await page.getByRole('button', { name: 'Look at it' }).click()
  await card.getByText('2 changed paths wait until you have looked at them').waitFor()

  const { one, clean } = gallery()
  for (const theme of ['night', 'day']) {
    await say(frame, `/theme ${theme}`)
    await frame.locator(`html[data-scheme=${theme === 'night' ? 'dark' : 'light'}]`).waitFor()
    for (const [width, height] of sizes) {
      await page.setViewportSize({ width, height })
      await card.waitFor()
      await one(page, frame, `${width}-${theme}-review`)
    }
    await page.setViewportSize({ width: 1440, height: 900 })
  }
  clean(t)

  await card.getByRole('button', { name: 'Comment on line 3', exact: true }).click()
  await card.getByRole('textbox', { name: 'Comment on line 3', exact: true }).fill('shorter')
  await card.getByRole('button', { name: 'Comment', exact: true }).first().click()
  await card.getByText('shorter').waitFor()
  await one(page, frame, '1440-day-review-comment')
  await card.getByRole('button', { name: 'Send back with 1 comment' }).click()
  await card.getByText('Line three of a poem').waitFor()
  assert.equal(live(), lines.join('\n') + '\n', 'nothing is live yet')

  // What was chosen and what is being written outlives the other face of the window, its closing and a reload.
  await card.getByRole('checkbox', { name: 'workspace/notes.md' }).uncheck()
  await card.getByLabel('Comment on all of it').fill('a better ti')
  const kept = async () => {
    await card.getByRole('checkbox', { name: 'workspace/notes.md', checked: false }).waitFor()
    assert.equal(await card.getByLabel('Comment on all of it').inputValue(), 'a better ti')
    await card.getByRole('button', { name: 'Send back with 1 comment' }).waitFor()
  }
  await run.getByRole('button', { name: 'Document' }).click()
  await run.getByRole('button', { name: 'Run', exact: true }).click()
  await kept()
  await frame.locator('[data-testid=window][data-active=true]').getByRole('button', { name: /^Close/ }).click()
  await say(frame, '/runs')
  await kept()
  await page.reload()
  await see()
  await kept()
  await card.getByLabel('Comment on all of it').fill('')

  // To discard it takes a second click.
  await card.getByRole('button', { name: 'Discard' }).click()
  await one(page, frame, '1440-day-review-discard')
  await card.getByRole('button', { name: 'Cancel' }).click()

  await card.getByRole('checkbox', { name: 'line 22' }).uncheck()
  await one(page, frame, '1440-day-review-part')
  await card.getByRole('button', { name: 'Publish what is chosen' }).click()
  await run.and(frame.locator('[data-status=done]')).waitFor()
  await bell(0)
  await run.getByText('1 path taken, whole or in part').waitFor()
  assert.equal(live(), lines.join('\n').replace('Line 3 of a poem', 'Line three of a poem') + '\n', 'what was chosen is live, and nothing else')
  assert.ok(!choir.cli(['files', 'ls', 'workspace']).includes('notes.md'))
  clean(t)
  await until('the log says what was decided', () => choir.events().filter((e) => e.type === 'review.answered').length === 2)
  assert.deepEqual(faults, [])
})

test('many changed files are a list, and what is discarded is no failure', async (t) => {
  const model = await modelServer(t, {
    turns: [
      { role: 'associate', match: 'Write many', calls: Array.from({ length: 8 }, (_, i) => ({ name: 'write', args: { path: `workspace/part-${i + 1}.md`, content: `Part ${i + 1}\n` } })) },
      { role: 'associate', match: 'Write many', calls: [{ name: 'finish', args: { status: 'ok', summary: 'They are written.' } }] },
    ],
  })
  const choir = await Choir.start(t, {
    env: { ANTHROPIC_API_KEY: 'sk-ant-test-0123456789abcdef', ANTHROPIC_BASE_URL: model.url, CHOIR_MODEL: 'anthropic/claude-sonnet-4-6', CHOIR_LOOPS_REVIEW: 'true', CHOIR_LOOPS_DIRECT_WORDS: '30' },
  })
  const { context, faults } = await visitor(await browse(t), choir, { viewport: { width: 1280, height: 800 } })
  const page = await claim(context, choir)
  const frame = await desktop(page)
  const run = frame.locator('[data-testid=window][data-active=true] [data-testid=run]')
  const card = run.getByTestId('review')
  await say(frame, 'Write many')
  await card.getByText('8 of 8 files chosen').waitFor()
  assert.equal(await card.getByText('Part 3').count(), 0, 'files are folded')
  const { one, clean } = gallery()
  for (const [width, height] of [[1280, 800], [390, 844]]) {
    await page.setViewportSize({ width, height })
    const [end, edge] = await card.locator('footer').evaluate((e) => [e.getBoundingClientRect().bottom, e.closest('[role=region]').getBoundingClientRect().bottom].map(Math.round))
    assert.ok(Math.abs(end - edge) <= 2 || width > 390, `the decisions end at ${end}, the window’s content at ${edge}`)
    await one(page, frame, `${width}-night-review-many`)
  }
  await page.setViewportSize({ width: 1280, height: 800 })
  await card.getByRole('button', { name: 'Changes in workspace/part-3.md' }).click()
  await card.getByText('Part 3').waitFor()
  await card.getByRole('button', { name: 'Discard' }).click()
  await card.getByRole('button', { name: 'Discard it' }).click()
  await run.getByTestId('run-status').getByText('discarded by you').waitFor()
  await run.getByTestId('answer').getByText('What it wrote is kept').waitFor()
  assert.equal(await frame.getByTestId('toast').filter({ hasText: 'Run failed' }).count(), 0)
  await one(page, frame, '1280-night-review-discarded')
  clean(t)
  assert.deepEqual(faults, [])
})
