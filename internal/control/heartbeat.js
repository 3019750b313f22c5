// Runs first in every desktop page and tells the control plane how it is: that
// it has painted, or that it is blank or throws.
(() => {
  'use strict'
  const me = document.currentScript
  const { mode, load, console: parentOrigin } = me.dataset
  me.remove()
  const root = document.documentElement
  const patience = 15000 // until the first paint
  const blankFor = 2000 // a page that was fine and shows nothing
  const send = fetch.bind(window)
  let said = '' // the last thing told
  let told = false // the frame knows that it painted
  let failure = ''
  let blankSince = 0

  function tell(body) {
    const text = JSON.stringify({ load, ...body })
    if (text === said) return
    said = text
    send('/_choir/heartbeat', { method: 'POST', headers: { 'content-type': 'application/json' }, body: text, keepalive: true }).then(
      (r) => { if (!r.ok) said = '' },
      () => { said = '' }, // told again with the next look
    )
  }

  function words(e) {
    const text = e && (e.stack || e.message) ? `${e.message}\n${e.stack || ''}` : String(e)
    return text.slice(0, 1500)
  }

  addEventListener('error', (e) => {
    if (e.error || e.message) failure = words(e.error || e.message)
    else if (e.target instanceof HTMLScriptElement) failure = `${e.target.src} can’t be loaded`
  }, true) // what fails to load tells its element only
  addEventListener('unhandledrejection', (e) => { failure = words(e.reason) })

  const started = performance.now()
  function shows() {
    const app = document.getElementById('root')
    return Boolean(app && app.childElementCount > 0 && app.getBoundingClientRect().height > 0)
  }

  function look() {
    const now = performance.now()
    if (document.visibilityState === 'hidden' && said) return
    if (root.dataset.choirReady && shows()) {
      if (!told || blankSince) failure = '' // what was thrown before did not keep it from painting
      blankSince = 0
      tell({ broken: false })
      if (!told) {
        told = true
        parent.postMessage({ type: 'choir.painted', mode }, parentOrigin)
      }
      return
    }
    if (told) {
      blankSince ||= now
      if (now - blankSince > blankFor) tell({ broken: true, reason: failure ? 'error' : 'blank', detail: failure })
    } else if (now - started > patience || (failure && now - started > blankFor && document.readyState === 'complete')) {
      tell({ broken: true, reason: failure ? 'error' : 'blank', detail: failure })
    }
  }

  new MutationObserver(look).observe(root, { attributes: true, attributeFilter: ['data-choir-ready'] })
  setInterval(look, 500)
  addEventListener('pagehide', () => tell({ gone: true }))
})()
