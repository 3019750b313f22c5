// Shows what appears only when something is wrong or waits: axe checks it, and pictures of it are
// kept, at three sizes and in both themes, as look.test.mjs does for what always shows.

import { readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { browse, Choir, claim, desktop, gallery, modelServer, say, scratch, sizes, until, visitor } from './harness.mjs'

const themes = [['night', 'dark'], ['day', 'light']]
const reason = 'The tests of the payment module talk to its sandbox, which listens there. Without it eleven of them fail.'

test('what waits and what is not kept', async (t) => {
  const model = await modelServer(t, {
    turns: [
      { role: 'director', match: 'payment', calls: [{ name: 'delegate', args: { tasks: [{ kind: 'agent', goal: 'Run the payment tests', tools: ['read'], verify: { profile: 'none' }, egress: { profile: 'custom', allow: ['sandbox.invalid:8443', 'certificates.invalid:443'], reason } }] } }] },
      { role: 'associate', match: 'Run the payment tests', calls: [{ name: 'finish', args: { status: 'ok', summary: 'Tried.' } }] },
      { role: 'director', match: 'payment', calls: [{ name: 'report', args: { status: 'done', summary: 'Done.' } }] },
    ],
  })
  const data = scratch(t)
  const env = { ANTHROPIC_API_KEY: 'sk-ant-test-0123456789abcdef', ANTHROPIC_BASE_URL: model.url, CHOIR_MODEL: 'anthropic/claude-sonnet-4-6' }
  let choir = await Choir.start(t, { data, env })
  // The very first checkpoint would show every line of the shell's source, which axe would go
  // through each time.
  choir.put('workspace/ideas.txt', 'A shop\n')
  choir.cli(['checkpoint', '-m', 'Before the shop'])
  choir.put('workspace/shop/.gitignore', 'node_modules/\n*.key\n')
  choir.cli(['exec', '--', 'sh', '-c', 'cd workspace/shop && mkdir -p node_modules/left-pad src && echo x > node_modules/left-pad/index.js && echo "export const price = 12" > src/price.js && echo "# Shop" > README.md && echo k > signing.key && mkfifo events.pipe && head -c 300000 /dev/urandom > src/fixture.bin'])
  const browser = await browse(t)
  const { context } = await visitor(browser, choir)
  const first = await claim(context, choir)
  await desktop(first)
  const pages = []
  for (const [theme, scheme] of themes) {
    const { context: own } = await visitor(browser, choir, { colorScheme: scheme, storageState: await context.storageState() })
    const page = await own.newPage()
    pages.push({ theme, scheme, page })
  }
  const home = first.url()
  await context.close() // nobody looks there any more
  const g = gallery()
  const paint = async (frame, theme, scheme) => {
    await say(frame, `/theme ${theme}`)
    await frame.locator(`html[data-scheme=${scheme}]`).waitFor()
    // The theme is there to stay once the log has it.
    await until('the theme is written', () => (choir.events().findLast((e) => e.type === 'theme.changed')?.data.theme.scheme ?? 'dark') === scheme)
  }

  for (const { theme, scheme, page } of pages) {
    await t.test(`Files and Time Travel, ${theme}`, async (t2) => {
      await page.goto(home)
      const frame = await desktop(page)
      await paint(frame, theme, scheme)
      await say(frame, '/new')
      await frame.getByTestId('icon-files').click()
      const files = frame.locator('[data-testid=window][data-active=true]')
      await files.locator('[data-file="workspace"]').click()
      await files.locator('[data-file="workspace/shop"]').click()
      await files.locator('[data-file="workspace/shop/events.pipe"]').waitFor()
      await g.all(page, frame, `${theme}-files`)
      await say(frame, '/new')
      await frame.getByTestId('icon-timetravel').click()
      await frame.getByTestId('checkpoint').filter({ hasText: '1 not in it' }).first().click()
      await frame.getByTestId('not-in-it').waitFor()
      await g.all(page, frame, `${theme}-not-in-it`)
      await frame.getByTestId('checkpoint').filter({ hasText: 'Before the shop' }).evaluate((e) => e.click()) // on a phone the list is behind it
      await frame.getByTestId('restore').click()
      await frame.getByTestId('restore-plan').getByText('no checkpoint has it').waitFor()
      await g.all(page, frame, `${theme}-restore-stays`)
      await frame.getByTestId('restore-plan').getByRole('button', { name: 'Keep things as they are' }).click()
      await say(frame, '/new')
      g.clean(t2)
    })
  }

  await t.test('the approval sheet and what runs', async (t2) => {
    const { page } = pages[0]
    const frame = await desktop(page)
    await say(frame, 'Run the tests of the payment module')
    await page.locator('#bell[aria-label="Approvals, 2 waiting"]').waitFor()
    await say(frame, '!for n in $(seq 1 900); do echo "round $n"; sleep 1; done')
    await until('both are listed', async () => (await page.locator('#running-list li').count()) === 2)
    for (const { theme, scheme, page } of pages) {
      const at = await desktop(page)
      await paint(at, theme, scheme)
      await page.locator('#bell').click()
      await page.getByRole('region', { name: 'Approvals' }).getByRole('listitem').first().waitFor()
      await g.all(page, at, `${theme}-approvals`)
      await page.keyboard.press('Escape')
      await until('both are listed', async () => (await page.locator('#running-list li').count()) === 2)
      for (const [width, height] of sizes) {
        await page.setViewportSize({ width, height })
        await page.locator('#running-more').click()
        await page.getByRole('region', { name: 'What runs' }).waitFor()
        await g.one(page, at, `${width}-${theme}-runs`)
        await page.keyboard.press('Escape')
      }
    }
    g.clean(t2)
  })

  await t.test('the waiting list, with the line down', async (t2) => {
    for (const { theme, scheme, page } of pages) {
      await page.setViewportSize({ width: 1440, height: 900 })
      await page.reload()
      const there = await desktop(page)
      await paint(there, theme, scheme)
      await say(there, '/new')
      await until('no window is open', async () => (await there.locator('[data-testid=window][data-hidden=false]').count()) === 0)
      await choir.kill()
      const element = await page.locator('iframe[data-role=shown]').elementHandle()
      const frame = await element.contentFrame()
      await frame.getByTestId('offline').waitFor()
      await say(frame, 'Rename the price constant everywhere it is used')
      await say(frame, 'Then write a test that fails without it')
      await frame.getByTestId('waiting').click()
      await frame.getByRole('region', { name: 'What waits to be sent' }).waitFor()
      await g.all(page, frame, `${theme}-waiting`)
      choir = await Choir.start(t, { data, env, listen: `127.0.0.1:${choir.port}` })
    }
    g.clean(t2)
  })
})

test('a computer that does not wake', async (t) => {
  const data = scratch(t)
  let choir = await Choir.start(t, { data })
  const browser = await browse(t)
  const { context } = await visitor(browser, choir)
  await desktop(await claim(context, choir))
  const state = await context.storageState()
  await context.close()
  await choir.stop()
  const [cid] = readdirSync(join(data, 'computers'))
  rmSync(join(data, 'computers', cid, 'workspace'), { recursive: true })
  choir = await Choir.start(t, { data })
  const g = gallery()
  for (const [theme, scheme] of themes) {
    const { context: own } = await visitor(browser, choir, { colorScheme: scheme, storageState: state })
    const page = await own.newPage()
    await page.goto(choir.url)
    await page.getByRole('alertdialog', { name: /damaged/ }).waitFor()
    await g.all(page, null, `${theme}-wake`)
    await own.close()
  }
  g.clean(t)
})
