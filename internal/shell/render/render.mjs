// Builds the shell in the current directory and opens it in a document without
// a browser: exits with 0 when it paints without throwing, with 1 and the
// reason when it doesn't. It comes from the host, so no edit of the shell can
// change what it asks.
//
// The page runs in this very process, where it can end it with any code it
// likes. So what counts is the word that comes on standard input before anything
// of the shell's is loaded, said again at the end. What the shell's build runs,
// which is the shell's own as well, is another process.
//
// usage: node render.mjs OUT   (OUT: an empty directory for the build)
import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'

const out = process.argv[2]
const require = createRequire(join(process.cwd(), 'package.json'))
const patience = 20_000
const { log: say, error: complain } = console // the document brings a console of its own
process.exitCode = 1 // an end that nobody decided on is a failure

function fail(reason) {
  complain(reason)
  process.exit(1)
}

if (process.argv[3] === 'build') {
  const { build } = await import(pathToFileURL(require.resolve('vite')).href)
  try {
    await build({ configLoader: 'runner', logLevel: 'error', build: { outDir: out, emptyOutDir: true, minify: false } })
  } catch (err) {
    fail(`it does not build: ${err.message}`)
  }
  process.exit(0)
}
const word = readFileSync(0, 'utf8').trim()
const built = spawnSync(process.execPath, [fileURLToPath(import.meta.url), out, 'build'], { stdio: ['ignore', 'ignore', 'pipe'], encoding: 'utf8' })
if (built.status !== 0) fail(built.stderr || built.error?.message || 'it does not build')
if (!existsSync(join(out, 'index.html'))) fail('its build leaves no index.html')

const { Window } = await import(pathToFileURL(require.resolve('happy-dom')).href)
const window = new Window({
  url: 'http://render.desk.choir.localhost/',
  width: 1440,
  height: 900,
  settings: {
    disableJavaScriptFileLoading: true,
    disableCSSFileLoading: true,
    handleDisabledFileLoadingAsSuccess: true,
    disableIframePageLoading: true,
  },
})
const thrown = []
const note = (err) => thrown.push(err?.stack ?? String(err))
process.on('uncaughtException', note)
process.on('unhandledRejection', note)
process.on('exit', () => {
  if (process.exitCode !== 0 && thrown.length > 0) complain(thrown[0])
})
window.addEventListener('error', (event) => note(event.error ?? event.message))
console.error = (...args) => {
  if (args.some((a) => a instanceof Error)) note(args.find((a) => a instanceof Error))
}

// The page finds no host: no session, no connection. It has to paint anyway.
window.fetch = () => Promise.reject(new TypeError('there is no host here'))
window.WebSocket = class {
  constructor() {
    setTimeout(() => this.onclose?.({ code: 1006, wasClean: false }), 0)
  }
  addEventListener() {}
  removeEventListener() {}
  send() {}
  close() {}
}
for (const name of Object.getOwnPropertyNames(window)) {
  if (name in globalThis && !['navigator', 'fetch', 'WebSocket', 'Event', 'EventTarget', 'CustomEvent', 'MessageEvent', 'addEventListener', 'removeEventListener', 'dispatchEvent', 'URL', 'performance'].includes(name)) continue
  if (['URL', 'performance', 'globalThis', 'undefined', 'NaN', 'Infinity'].includes(name)) continue
  const descriptor = Object.getOwnPropertyDescriptor(window, name)
  try {
    Object.defineProperty(globalThis, name, { ...descriptor, configurable: true })
  } catch {
    // What Node does not let go of stays Node's.
  }
}
for (const name of ['window', 'self', 'top', 'parent', 'frames']) {
  Object.defineProperty(globalThis, name, { value: globalThis, configurable: true })
}
for (const name of ['document', 'navigator', 'location', 'history', 'localStorage', 'sessionStorage']) {
  Object.defineProperty(globalThis, name, { value: window[name], configurable: true })
}

const html = readFileSync(join(out, 'index.html'), 'utf8')
const body = /<body[^>]*>([\s\S]*?)<\/body>/.exec(html)
if (!body) fail('index.html has no body')
window.document.body.innerHTML = body[1].replace(/<script[\s\S]*?<\/script>/g, '')
const entries = [...html.matchAll(/<script[^>]*type="module"[^>]*src="([^"]+)"/g)].map((m) => m[1])
if (entries.length === 0) fail('index.html loads no module')
for (const src of entries) {
  try {
    await import(pathToFileURL(join(out, src)).href)
  } catch (err) {
    fail(`${src} throws: ${err.stack ?? err}`)
  }
}

const started = Date.now()
const painted = () => window.document.documentElement.dataset.choirReady && window.document.getElementById('root')?.childElementCount > 0
const look = setInterval(() => {
  if (thrown.length > 0) {
    clearInterval(look)
    complain(thrown[0])
    fail('the page throws')
  }
  if (painted()) {
    clearInterval(look)
    const shown = window.document.querySelector('[data-testid="desktop"]')
    if (!shown || shown.childElementCount === 0) fail('the desktop is empty')
    say(`painted without throwing ${word}`)
    process.exit(0)
  }
  if (Date.now() - started > patience) {
    clearInterval(look)
    fail(`nothing was painted within ${patience / 1000} s`)
  }
}, 20)
