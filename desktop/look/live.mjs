// Rewrites the shell's source while it runs, behind a proxy and under the policy, and
// checks that the page followed without a reload.
//   node look/live.mjs

import { cp, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { spawn } from 'node:child_process'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect, launch, open } from './browser.mjs'
import { serve } from './host.mjs'
import { World } from './world.mjs'

const base = new URL('..', import.meta.url).pathname
const tree = await mkdtemp(join(tmpdir(), 'choir-live-'))
for (const name of ['index.html', 'package.json', 'tsconfig.json', 'vite.config.ts', 'src', 'vite', 'public']) await cp(join(base, name), join(tree, name), { recursive: true })
await symlink(join(base, 'node_modules'), join(tree, 'node_modules')) // (fonts behind a link are refused as outside; a computer has a bind mount)
const port = 20000 + Math.floor(Math.random() * 20000)
const cache = join(tree, '..', `${tree.split('/').pop()}-cache`)
const vite = spawn(process.execPath, ['node_modules/vite/bin/vite.js', '--configLoader', 'runner', '--port', String(port), '--strictPort'], {
  cwd: tree, env: { ...process.env, CHOIR_VITE_CACHE: cache }, stdio: ['ignore', 'pipe', 'pipe'],
})
let log = ''
vite.stdout.on('data', (d) => (log += d))
vite.stderr.on('data', (d) => (log += d))
let failed = 0
const check = (what, ok, detail = '') => {
  if (!ok) failed++
  console.log(`${ok ? 'ok  ' : 'FAIL'} ${what}${ok ? '' : ` ${detail}`}`)
}
const until = async (f, ms = 8000) => {
  for (const end = Date.now() + ms; Date.now() < end; await new Promise((r) => setTimeout(r, 20))) if (await f()) return true
  return false
}
let browser
let host
try {
  await until(async () => (await fetch(`http://127.0.0.1:${port}/`).catch(() => null))?.ok, 20000)
  host = await serve(port)
  browser = await launch()
  const page = await (await browser.newContext({ viewport: { width: 1280, height: 800 } })).newPage()
  const world = new World()
  const faults = await connect(page, world)
  await open(page, host.url)
  check('painted under the policy', true)
  await page.evaluate(() => (window.marker = 'still here'))
  await page.getByTestId('icon-events').click()
  await page.getByTestId('event').first().waitFor()
  await page.getByLabel('Filter').fill('checkpoint')
  const kept = async () => (await page.evaluate(() => window.marker)) === 'still here' && (await page.getByLabel('Filter').inputValue()) === 'checkpoint'
  const background = () => page.getByTestId('desktop').evaluate((e) => getComputedStyle(e).backgroundColor)

  const css = join(tree, 'src/shell/desktop.css')
  const source = await readFile(css, 'utf8')
  const colour = Array.from({ length: 3 }, () => Math.floor(Math.random() * 256))
  const started = Date.now()
  await writeFile(css, source.replace('--shell-background: var(--choir-background)', `--shell-background: rgb(${colour.join(' ')})`))
  check('source: the background follows', await until(async () => (await background()) === `rgb(${colour.join(', ')})`), await background())
  console.log(`     ${Date.now() - started} ms from write to computed style`)
  await writeFile(css, source)
  check('source: and comes back', await until(async () => (await background()) === 'rgb(10, 10, 11)'), await background())

  const night = { ...world.theme, name: 'Mine', scheme: 'dark', radius: 4, colors: { accent: '#d4af37', background: '#123456', border: '#28282c', danger: '#ef6f66', muted: '#98979e', ok: '#62c08a', surface: '#121214', 'surface-raised': '#1a1a1d', text: '#ececea', warn: '#e8965a' } }
  world.append('system', 'theme.changed', { theme: night })
  check('theme: the background follows', await until(async () => (await background()) === 'rgb(18, 52, 86)'), await background())
  world.append('system', 'theme.changed', { theme: { ...night, colors: { ...night.colors, background: 'url(x)' } } })
  check('theme: a broken one keeps the last good one', !(await until(async () => (await background()) !== 'rgb(18, 52, 86)', 400)))

  await mkdir(join(tree, 'src/apps/clock'))
  await writeFile(join(tree, 'src/apps/clock/Clock.tsx'), 'export default function Clock() {\n  return <time data-testid="clock">now</time>\n}\n')
  await writeFile(join(tree, 'src/apps/clock/manifest.ts'), "import { Clock4 } from 'lucide-react'\nimport { manifest } from '../types'\nexport default manifest({ name: 'Clock', icon: Clock4, entry: () => import('./Clock'), window: { w: 300, h: 200 } })\n")
  check('an app: its icon appears', await until(() => page.getByTestId('icon-clock').isVisible()))
  await page.getByTestId('icon-clock').click()
  check('an app: it opens', await until(() => page.getByTestId('clock').isVisible()))
  check('state survived', await kept())

  await writeFile(join(tree, 'src/apps/clock/Clock.tsx'), "export default function Clock() {\n  throw new Error('out of time')\n}\n")
  check('an app that throws shows its card', await until(() => page.getByText('out of time').first().isVisible()))
  await writeFile(join(tree, 'src/apps/clock/Clock.tsx'), 'export default function Clock( {\n')
  check('source that does not compile is said', await until(() => page.getByTestId('source-error').isVisible()))
  await writeFile(join(tree, 'src/apps/clock/Clock.tsx'), 'export default function Clock() {\n  return <time data-testid="clock">again</time>\n}\n')
  check('and mended', await until(async () => (await page.getByText('again', { exact: true }).isVisible()) && !(await page.getByTestId('source-error').isVisible())))

  const store = join(tree, 'src/stores/windows.ts')
  await writeFile(store, (await readFile(store, 'utf8')) + '\nexport const touched = true\n')
  const shell = join(tree, 'src/shell/Desktop.tsx')
  await writeFile(shell, (await readFile(shell, 'utf8')).replace('<b>{name}</b>', '<b data-testid="renamed">{name}!</b>'))
  check('a component of the shell follows', await until(() => page.getByTestId('renamed').isVisible()))
  const link = join(tree, 'src/link/link.ts')
  await writeFile(link, (await readFile(link, 'utf8')) + '\nexport const touched = true\n')
  await page.waitForTimeout(800)
  check('state survived stores, shell and link', await kept(), `${await page.evaluate(() => window.marker)} ${await page.getByLabel('Filter').inputValue()}\n${log.split('\n').slice(-12).join('\n')}`)
  check('windows survived', (await page.getByTestId('window').count()) === 2, String(await page.getByTestId('window').count()))
  const e = world.append('person', 'file.written', { path: 'workspace/after.md', size: 1 })
  await page.getByLabel('Filter').fill('after.md')
  check('events still arrive', await until(() => page.getByText('workspace/after.md').first().isVisible()), String(e.sequence))

  let stale = 0
  for (let i = 0; i < 12; i++) {
    const text = `${source}\n[data-testid='desktop'] { --probe: `
    await writeFile(css, `${text}a${i} }\n`)
    await new Promise((r) => setTimeout(r, 5 + i * 4))
    await writeFile(css, `${text}b${i} }\n`)
    const got = () => page.getByTestId('desktop').evaluate((el) => getComputedStyle(el).getPropertyValue('--probe').trim())
    if (!(await until(async () => (await got()) === `b${i}`, 1500))) stale++
  }
  check('a second write right after the first is never lost', stale === 0, `${stale} of 12 stale`)
  world.hangUp()
  await page.waitForSelector('[data-testid="connection"][data-state="online"]')
  check('a lost line comes back without a reload', (await page.evaluate(() => window.marker)) === 'still here')
  const outside = await page.evaluate(async () => (await fetch('/@fs/etc/passwd')).status)
  check('files outside the tree are refused', outside === 403 || outside === 404, String(outside))
  const unexpected = faults.filter((f) => !/out of time|error occurred in|403|Failed to reload|Clock\.tsx|woff2|500 \(/.test(f))
  check('nothing else went wrong in the page', unexpected.length === 0, unexpected.join('\n     '))
} catch (e) {
  check('the look itself', false, `${e.stack}\n${log}`)
} finally {
  await browser?.close()
  await host?.close()
  vite.kill()
  await rm(tree, { recursive: true, force: true })
  await rm(cache, { recursive: true, force: true })
}
process.exit(failed === 0 ? 0 : 1)
