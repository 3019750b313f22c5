// Shows that what no checkpoint holds is said where a person looks: in the command's window, in
// Files, in Time Travel and before a restore.

import assert from 'node:assert/strict'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { axe, browse, Choir, claim, desktop, say, scratch, visitor } from './harness.mjs'

test('what is not protected is said', async (t) => {
  const choir = await Choir.start(t)
  const dir = join(scratch(t), 'shop')
  mkdirSync(join(dir, 'deps'), { recursive: true })
  mkdirSync(join(dir, 'src'))
  for (const [name, text] of [['.gitignore', '/deps/\n*.key\n'], ['deps/lib.js', 'lib\n'], ['src/secret.key', 'k\n'], ['main.js', 'main\n']]) writeFileSync(join(dir, name), text)
  choir.cli(['add', dir])
  const before = choir.json('checkpoints')[0].id
  const { context, faults } = await visitor(await browse(t), choir)
  const page = await claim(context, choir)
  const frame = await desktop(page)
  const active = frame.locator('[data-testid=window][data-active=true]')
  const entry = (path) => active.locator(`[data-file="${path}"]`)

  await t.test('Files marks each entry, with the reason', async () => {
    await frame.getByTestId('icon-files').click()
    await entry('workspace').getByText('2 in it not kept').waitFor()
    await entry('workspace').click()
    await entry('workspace/shop').click()
    await entry('workspace/shop/deps').getByText('Not kept: it is ignored by workspace/shop/.gitignore').waitFor()
    await entry('workspace/shop/src').getByText('1 in it not kept').waitFor()
    assert.equal(await entry('workspace/shop/main.js').getAttribute('data-unkept'), 'false')
    await active.getByTestId('unkept').getByText('2 paths here are in no checkpoint').waitFor()
    await active.getByLabel('Only those').check()
    await entry('workspace/shop/main.js').waitFor({ state: 'detached' })
    assert.equal(await active.getByTestId('file').count(), 2)
    assert.deepEqual(await axe(frame), [])
  })
  await t.test('and what a command leaves behind shows at once, in its window too', async () => {
    await active.getByLabel('Only those').uncheck()
    await say(frame, '!mkfifo workspace/shop/pipe; echo k > workspace/shop/new.key')
    const left = active.getByTestId('unkept')
    await left.getByText('is a fifo').waitFor()
    await left.getByText('is ignored by workspace/shop/.gitignore').waitFor()
    const files = frame.locator('[data-testid=window]', { has: frame.getByTestId('file') })
    await files.locator('[data-file="workspace/shop/pipe"]').getByText('Not kept: it is a fifo').waitFor()
    await files.locator('[data-file="workspace/shop/new.key"]').getByText('Not kept').waitFor()
    assert.deepEqual(await axe(frame), [])
  })
  await t.test('a checkpoint says what is not in it, also to a page that comes later', async () => {
    for (const again of [false, true]) {
      if (again) await page.reload()
      const shown = again ? await desktop(page) : frame
      await shown.getByTestId('icon-timetravel').click()
      const top = shown.locator('[data-testid=window][data-active=true]')
      const newest = top.getByTestId('checkpoint').first()
      await newest.getByText('1 not in it').waitFor()
      await newest.click()
      const box = top.getByTestId('not-in-it')
      await box.getByText('1 file is not in it').waitFor()
      await box.getByText('3 files and folders ignored by .gitignore are not kept').waitFor()
      await box.getByText('workspace/shop/pipe').waitFor()
      await box.getByText('workspace/shop/deps').waitFor()
      assert.deepEqual(await axe(shown), [])
      // A restore says what it can't touch, too.
      await top.locator(`[data-checkpoint="${before}"]`).click()
      await top.getByTestId('restore').click()
      const plan = top.getByTestId('restore-plan')
      await plan.getByText('workspace/shop/pipe stays as it is: it is a fifo, and no checkpoint has it.').waitFor()
      await plan.getByText('3 ignored files and folders stay as they are.').waitFor()
    }
  })
  assert.deepEqual(faults, [])
})
