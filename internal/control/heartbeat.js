// Runs first in every desktop page. Tells the control plane every few seconds
// how the page is: that it has painted, or that it is blank or throws; and
// answers the console's question whether it still turns.
(() => {
  'use strict'
  const me = document.currentScript
  const { mode, load, console: parentOrigin } = me.dataset
  me.remove()
  const root = document.documentElement
  const patience = 15000 // until the first paint
  const blankFor = 2000 // a page that was fine and shows nothing
  const again = 5000 // between two reports of the same
  const send = fetch.bind(window)
  const say = parent.postMessage.bind(parent)
  let said = '' // the last thing told
  let saidAt = 0
  let told = false // the frame knows that it painted
  let ill = false // the frame knows that it stopped
  let gone = false
  let failure = ''
  let blankSince = 0

  function tell(body) {
    if (gone) return
    const text = JSON.stringify({ load, mode, hidden: document.visibilityState === 'hidden', stale: root.dataset.choirStale !== undefined, ...body })
    const now = performance.now()
    if (text === said && now - saidAt < again) return
    if (text !== said && body.broken) {
      ill = true
      say({ type: 'choir.broken', reason: body.reason, detail: String(body.detail ?? '').slice(0, 2000) }, parentOrigin)
    }
    said = text
    saidAt = now
    send('/_choir/heartbeat', { method: 'POST', headers: { 'content-type': 'application/json' }, body: text, keepalive: true }).then(
      (r) => { if (!r.ok) said = '' },
      () => { said = '' }, // told again with the next look
    )
  }

  function words(e) {
    const text = e && (e.stack || e.message) ? `${e.message}\n${e.stack || ''}` : String(e)
    return text.slice(0, 1500)
  }

  // The dev server says of source that it can't compile what is wrong and where;
  // its client writes that to the console and nowhere else.
  const complain = console.error
  console.error = function (...all) {
    const text = String(all[0] ?? '')
    if (text.startsWith('[vite] Internal Server Error')) {
      // eslint-disable-next-line no-control-regex
      const plain = text.replace(/\u001b\[[0-9;]*m/g, '')
      const at = /([\w@./-]+\.(?:tsx?|jsx?|mjs|css|html|json)):(\d+)/.exec(plain)
      const what = plain.split('\n').map((l) => l.trim()).find((l, i) => i > 0 && /error/i.test(l) && !/^Transform failed/.test(l)) ?? plain.split('\n')[1] ?? ''
      failure = `${at ? `${at[1].replace(/^.*\/src\//, 'src/')}, line ${at[2]}: ` : ''}${what.replace(/^\[\w+\]\s*/, '').replace(/^(?:Error:\s*)+/, '')}`.slice(0, 500)
    }
    return complain.apply(this, all)
  }
  addEventListener('error', (e) => {
    if (e.error || e.message) failure = words(e.error || e.message)
    else if (e.target instanceof HTMLScriptElement) failure ||= `${e.target.src} can’t be loaded`
  }, true) // what fails to load tells its element only
  addEventListener('unhandledrejection', (e) => { failure = words(e.reason) })
  addEventListener('message', (e) => {
    if (e.source === parent && e.origin === parentOrigin && e.data?.type === 'choir.ping') say({ type: 'choir.pong', n: e.data.n }, parentOrigin)
  })

  const started = performance.now()
  function shows() {
    const app = document.getElementById('root')
    return Boolean(app && app.childElementCount > 0 && app.getBoundingClientRect().height > 0)
  }

  function look() {
    const now = performance.now()
    if (root.dataset.choirReady && shows()) {
      if (!told || blankSince) failure = '' // what was thrown before did not keep it from painting
      blankSince = 0
      tell({ broken: false })
      if (!told || ill) {
        told = true
        ill = false
        say({ type: 'choir.painted', mode }, parentOrigin)
        scheme()
      }
      return
    }
    if (document.visibilityState === 'hidden' && said) return
    if (told) {
      blankSince ||= now
      if (now - blankSince > blankFor) tell({ broken: true, reason: failure ? 'error' : 'blank', detail: failure })
    } else if (now - started > patience || (failure && now - started > blankFor && document.readyState === 'complete')) {
      tell({ broken: true, reason: failure ? 'error' : 'blank', detail: failure })
    }
  }

  /** The one thing of a theme that crosses: whether it is light or dark. */
  function scheme() {
    if (told) say({ type: 'choir.scheme', scheme: root.dataset.scheme }, parentOrigin)
  }

  new MutationObserver(scheme).observe(root, { attributes: true, attributeFilter: ['data-scheme'] })
  new MutationObserver(look).observe(root, { attributes: true, attributeFilter: ['data-choir-ready'] })
  document.addEventListener('visibilitychange', look)
  setInterval(look, 500)
  addEventListener('pagehide', () => {
    tell({ gone: true })
    gone = true
  })
})()
