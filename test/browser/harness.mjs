// Runs the real binary and a real browser for tests: `choir up` with a data directory of its own,
// and Chromium with a fresh profile. It collects what went wrong in either.

import { spawn, spawnSync } from 'node:child_process'
import { createHash, randomInt } from 'node:crypto'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { request } from 'node:http'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join, relative } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'

export const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))))
const fromDesktop = createRequire(join(root, 'desktop', 'package.json'))
const { chromium } = fromDesktop('playwright-core')
const binary = join(root, 'bin', 'choir')
const player = join(root, 'bin', 'cache', 'modelserver')

/** Where pictures and logs go; git ignores it. */
export const out = join(root, 'test', 'browser', 'out')
mkdirSync(out, { recursive: true })

// A process of ours gets only these variables of the machine: no keys and no proxies.
const plain = Object.fromEntries(['PATH', 'HOME', 'LANG', 'TMPDIR', 'GOPATH', 'GOMODCACHE', 'GOCACHE', 'GOFLAGS', 'GOPROXY'].flatMap((k) => (process.env[k] ? [[k, process.env[k]]] : [])))

// How long anything is waited for that must come. It only ends a test in which it never does:
// a verification takes a few seconds, and minutes where the machine does ten other things.
const patience = 180_000

/** Waits until f returns something true, and returns it; throws when patience is at its end, with the last word. */
export async function until(what, f) {
  const end = Date.now() + patience
  for (let wait = 10; ; wait = Math.min(wait * 1.6, 200)) {
    const got = await f()
    if (got) return got
    if (Date.now() > end) throw new Error(`after ${patience} ms still not: ${typeof what === 'function' ? await what() : what}`)
    await new Promise((r) => setTimeout(r, wait))
  }
}

const ends = new WeakMap()

/**
 * Runs f when the test has ended: the last one given first, and every one even
 * if another fails. (Node's own hooks run first come, first served and stop at
 * the first failure: a directory would go before what writes into it, and a
 * process would be left that keeps the suite from ending.)
 */
export function atEnd(t, f) {
  const stack = ends.get(t)
  if (stack) return void stack.push(f)
  const own = [f]
  ends.set(t, own)
  t.after(async () => {
    const failed = []
    while (own.length > 0) {
      try {
        await own.pop()()
      } catch (e) {
        failed.push(e)
      }
    }
    if (failed.length > 0) throw failed.length === 1 ? failed[0] : new AggregateError(failed)
  })
}

/** A directory that goes when the test's clean-up runs. */
export function scratch(t) {
  const dir = mkdtempSync(join(tmpdir(), 'choir-browser-'))
  atEnd(t, () => rmSync(dir, { recursive: true, force: true }))
  return dir
}

// Installs the shell's dependencies as `choir up` would have, by linking them once from
// desktop/node_modules, as test/choirtest does. Boxes see them read-only.
function shareModules(data) {
  const lock = readFileSync(join(root, 'desktop', 'package-lock.json'))
  const shared = join(root, 'bin', 'cache', 'node_modules')
  const final = join(shared, createHash('sha256').update(lock).digest().subarray(0, 8).toString('hex'))
  mkdirSync(shared, { recursive: true })
  if (!existsSync(final)) {
    const own = mkdtempSync(join(shared, '.new-'))
    run('cp', ['-al', join(root, 'desktop', 'node_modules'), own])
    try {
      renameSync(own, final)
    } catch (e) {
      rmSync(own, { recursive: true, force: true })
      if (!existsSync(final)) throw e
    }
  }
  mkdirSync(join(data, 'cache'), { recursive: true, mode: 0o700 })
  if (!existsSync(join(data, 'cache', 'node_modules'))) symlinkSync(shared, join(data, 'cache', 'node_modules'))
}

function run(command, args, options = {}) {
  const r = spawnSync(command, args, { encoding: 'utf8', maxBuffer: 64 << 20, ...options })
  if (r.error) throw r.error
  if (r.status !== 0) throw new Error(`${command} ${args.join(' ')}: exit code ${r.status}\n${r.stdout}${r.stderr}`)
  return r.stdout
}

/** One running control plane. */
export class Choir {
  /** Starts it and waits until it is healthy. It ends with the test; its log is then in out/. */
  static async start(t, { data = scratch(t), listen = '127.0.0.1:0', env = {}, stopped = false } = {}) {
    if (!existsSync(binary)) throw new Error(`${binary} is not there: run make build`)
    shareModules(data)
    const c = new Choir()
    c.data = data
    c.log = ''
    c.process = spawn(binary, ['up', '--data', data, '--listen', listen, '--no-open', '--json'], { env: { ...plain, CHOIR_LOOPS_DIRECT_WORDS: '0', ...env }, stdio: ['ignore', 'pipe', 'pipe'] })
    c.ended = new Promise((r) => c.process.once('exit', r))
    c.process.stderr.on('data', (b) => (c.log = (c.log + b).slice(-256 << 10)))
    atEnd(t, async () => {
      await c.stop()
      writeFileSync(join(out, `${t.name.replaceAll(/\W+/g, '-')}.log`), c.log)
    })
    const lines = createInterface({ input: c.process.stdout })
    const line = await new Promise((resolve) => {
      lines.once('line', resolve)
      void c.ended.then(() => resolve(''))
    })
    if (!line) throw new Error(`choir up did not come up:\n${c.log}`)
    Object.assign(c, JSON.parse(line))
    c.port = new URL(c.url).port
    if (c.stopped && !stopped) throw new Error(`choir up can't open what is stored: ${c.stopped.detail}`)
    return c
  }

  /** Ends it in an orderly way. */
  async stop() {
    if (this.process.exitCode !== null || this.process.signalCode !== null) return
    this.process.kill('SIGTERM')
    const late = setTimeout(() => this.process.kill('SIGKILL'), 30_000)
    await this.ended
    clearTimeout(late)
  }

  /** Ends it as a crash would. */
  async kill() {
    this.process.kill('SIGKILL')
    await this.ended
  }

  /** Runs `choir ARGS` and returns what it printed; throws unless it exits with one of codes. */
  cli(args, { input, codes = [0] } = {}) {
    const r = spawnSync(binary, args, { env: { ...plain, CHOIR_URL: this.url, CHOIR_TOKEN: this.token }, input, encoding: 'utf8', timeout: 120_000, maxBuffer: 64 << 20 })
    if (r.error) throw r.error
    if (!codes.includes(r.status)) throw new Error(`choir ${args.join(' ')}: exit code ${r.status}\n${r.stdout}${r.stderr}`)
    return r.stdout
  }

  json(...args) {
    return JSON.parse(this.cli([...args, '--json']))
  }

  /** Writes a file of the workspace, as the user. */
  put(path, text) {
    const file = join(this.data, 'put')
    writeFileSync(file, text)
    this.cli(['files', 'put', file, path])
  }

  /** The whole log. */
  events() {
    return this.cli(['events']).trim().split('\n').map((l) => JSON.parse(l))
  }
}

/** The scripted model server, playing a script with values for {{name}}; release lets go of what a turn holds. */
export async function modelServer(t, script, values = {}) {
  const dir = scratch(t)
  if (!existsSync(player)) throw new Error(`${player} is not there: run make ${relative(root, player)}`)
  const file = join(dir, 'script.json')
  writeFileSync(file, JSON.stringify(script))
  const p = spawn(player, ['-script', file, ...Object.entries(values).flatMap(([k, v]) => ['-value', `${k}=${v}`])], { env: plain, stdio: ['pipe', 'pipe', 'ignore'] })
  const ended = new Promise((r) => p.once('exit', r))
  atEnd(t, async () => {
    p.kill('SIGTERM')
    await ended
  })
  const requests = []
  const url = await new Promise((resolve, reject) => {
    let first = true
    createInterface({ input: p.stdout }).on('line', (l) => {
      if (first) resolve(l)
      else requests.push(JSON.parse(l))
      first = false
    })
    void ended.then(() => reject(new Error('the model server did not come up')))
  })
  return { url, requests, release: (name) => p.stdin.write(`release ${name}\n`) }
}

/** One HTTP request with exactly these headers, to a host of ours: {status, headers, body}. */
export function fetchRaw(url, { method = 'GET', headers = {} } = {}) {
  const u = new URL(url)
  return new Promise((resolve, reject) => {
    const req = request({ host: '127.0.0.1', port: u.port, method, path: u.pathname + u.search, headers: { host: u.host, ...headers }, timeout: 10_000 }, (res) => {
      let body = ''
      res.on('data', (b) => (body += b))
      res.on('end', () => resolve({ status: res.statusCode, headers: res.headers, body }))
    })
    req.on('upgrade', (res, socket) => {
      socket.destroy()
      resolve({ status: res.statusCode, headers: res.headers, body: '' })
    })
    req.on('timeout', () => req.destroy(new Error(`${url}: no answer`)))
    req.on('error', reject)
    req.end()
  })
}

// What Chromium is to leave out. The first two are pages of its own that it loads for the
// address bar of each window: half of the processor time that opening a window takes (0.6 s). The
// others are those that playwright-core leaves out: of two such lists only the last one counts.
const without = [
  'WebUIOmniboxPopup', 'WebUIOmniboxAimPopup',
  'AvoidUnnecessaryBeforeUnloadCheckSync', 'DestroyProfileOnBrowserClose', 'HttpsUpgrades', 'HttpsFirstBalancedModeAutoEnable', 'LensOverlay', 'MediaRouter', 'PaintHolding', 'ThirdPartyStoragePartitioning',
  'AvoidCorsURLLoaderRestartOnRedirect', 'OptimizationHints', 'NetworkTimeServiceQuerying', 'AimEnabled', 'PreconnectToSearch', 'SkipListAccountsWithoutGaiaCookies',
]

/** Starts Chromium with a fresh profile. */
export async function browse(t) {
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    env: plain,
    args: ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync', `--disable-features=${without}`],
  })
  atEnd(t, () => browser.close())
  return browser
}

/**
 * A context whose pages are watched: everything that a page complains about,
 * and every request to another host than ours, is kept in `faults`.
 */
export async function visitor(browser, choir, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, colorScheme: 'dark', reducedMotion: 'reduce', ...options })
  context.setDefaultTimeout(patience)
  const faults = []
  // What the browser says about a policy that stopped something is an error on its console. It also
  // warns of the sandbox while the frame is still an empty page of the console's own origin.
  context.on('console', (m) => ['error', 'warning'].includes(m.type()) && !/^An iframe which has both allow-scripts and allow-same-origin/.test(m.text()) && faults.push(`${m.type()}: ${m.text()} (${m.location().url})`))
  context.on('weberror', (e) => faults.push(`error: ${e.error().stack}`))
  const ours = new RegExp(`^(console|[a-z0-9-]+\\.desk)\\.choir\\.localhost:${choir.port}$`)
  const look = (url) => {
    const u = new URL(url)
    if (!['data:', 'blob:', 'about:'].includes(u.protocol) && !ours.test(u.host)) faults.push(`foreign request: ${url}`)
  }
  context.on('request', (r) => look(r.url()))
  context.on('page', (p) => p.on('websocket', (w) => look(w.url())))
  return { context, faults }
}

/** Claims the computer through its link and returns the console's page. */
export async function claim(context, choir, name = 'Studio') {
  const page = await context.newPage()
  await page.goto(choir.claim_url)
  await page.locator('#go').waitFor()
  if (await page.getByLabel('Name').isVisible()) await page.getByLabel('Name').fill(name) // not where it was claimed before
  await page.locator('#go').click()
  await page.waitForURL((u) => u.pathname === '/')
  return page
}

/** A computer of its own, claimed and open in a browser. */
export async function opened(t) {
  const choir = await Choir.start(t)
  const browser = await browse(t)
  const { context } = await visitor(browser, choir)
  const page = await claim(context, choir)
  return { choir, browser, context, page }
}

/** The desktop's frame, once it shows in the given mode ('live' is served by Vite) and is connected. */
export async function desktop(page, mode = 'live') {
  const element = page.locator(`iframe[data-role=shown][data-mode=${mode}]`)
  await element.waitFor()
  const frame = await (await element.elementHandle()).contentFrame()
  await frame.locator('[data-testid=connection][data-state=online]').waitFor()
  return frame
}

/** The computed background of the desktop, as #rrggbb. */
export async function background(frame) {
  const rgb = await frame.getByTestId('desktop').evaluate((e) => getComputedStyle(e).backgroundColor)
  const m = /^rgb\((\d+), (\d+), (\d+)\)$/.exec(rgb)
  return m ? '#' + m.slice(1).map((n) => Number(n).toString(16).padStart(2, '0')).join('') : rgb
}

/** Types a line into the prompt bar and sends it. */
export async function say(frame, line) {
  await frame.getByTestId('prompt').fill(line)
  await frame.getByTestId('prompt').press('Enter')
}

/** A colour nobody chose, dark enough for the theme's light text. */
export function drawn() {
  return '#' + Array.from({ length: 3 }, () => randomInt(8, 72).toString(16).padStart(2, '0')).join('')
}

/** The sizes that pictures are taken at. */
export const sizes = [[1440, 900], [1024, 768], [390, 844]]

/** In a page: resolves once it is so wide, has been drawn so, and nothing moves that comes to an end. */
const settled = (width) => new Promise((done) => {
  const look = () => {
    const moving = document.getAnimations().some((a) => a.playState === 'running' && a.effect.getComputedTiming().endTime !== Infinity)
    if (innerWidth !== width || moving) requestAnimationFrame(look)
    else requestAnimationFrame(() => requestAnimationFrame(done))
  }
  look()
})

/** Takes pictures into out/ and looks pages over with axe; clean fails with what was found. */
export function gallery() {
  const found = []
  const g = {
    async one(page, frame, name) {
      const { width } = page.viewportSize()
      await page.evaluate(settled, width).catch((e) => {
        if (!/context was destroyed/.test(e.message)) throw e
        return page.evaluate(settled, width)
      })
      if (frame) await frame.evaluate(settled, width)
      await page.screenshot({ path: join(out, `${name}.png`) })
      for (const [where, what] of [['console', page.mainFrame()], ['desktop', frame]]) if (what) for (const v of await axe(what)) found.push(`${name}, ${where}: ${v}`)
    },
    /** One picture per size; the page is then as it was. */
    async all(page, frame, name) {
      const before = page.viewportSize()
      for (const [width, height] of sizes) {
        await page.setViewportSize({ width, height })
        await g.one(page, frame, `${width}-${name}`)
      }
      await page.setViewportSize(before)
    },
    clean(t) {
      const all = found.splice(0)
      if (all.length > 0) throw new Error(`${t.name}:\n${all.join('\n')}`)
    },
  }
  return g
}

/** What axe finds in a page or frame, in words. One that loads itself anew meanwhile is looked at again. */
export async function axe(frame, tries = 5) {
  let violations
  try {
    if (!(await frame.evaluate(() => Boolean(window.axe)))) await frame.evaluate(readFileSync(fromDesktop.resolve('axe-core/axe.min.js'), 'utf8'))
    ;({ violations } = await frame.evaluate(() => window.axe.run(document, { iframes: false, resultTypes: ['violations'] })))
  } catch (e) {
    if (tries === 0 || !/context was destroyed/.test(e.message)) throw e
    return axe(frame, tries - 1)
  }
  return violations.map((v) => `${v.id} (${v.impact}): ${v.help}\n  ${v.nodes.slice(0, 4).map((n) => `${n.html.slice(0, 160)} ${n.any[0]?.message ?? ''}`).join('\n  ')}`)
}
