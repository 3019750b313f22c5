// The desktop's iframes. One is shown; a second one may load under it and take
// its place when it has painted.

import { api, at } from './api.js'

const patience = 20_000

export class Stage {
  /** told: {painted(mode), failed(words)} */
  constructor(element, told) {
    this.element = element
    this.told = told
    this.shown = null
    this.next = null
    this.timer = 0
    this.count = 0
    addEventListener('message', (e) => this.hear(e))
  }

  /** Loads the desktop of a computer; the page shown so far stays until the new one has painted. since: of the dev server that it is asked from. */
  async load(cid, since = '') {
    let ticket
    try {
      ticket = await api('POST', at(cid, '/ticket'))
    } catch (problem) {
      this.told.failed(problem.words)
      return
    }
    this.drop(this.next)
    const frame = document.createElement('iframe')
    frame.name = `desktop-${++this.count}`
    frame.title = 'Desktop'
    frame.sandbox.add('allow-scripts', 'allow-same-origin', 'allow-forms', 'allow-downloads')
    frame.allow = 'clipboard-write'
    frame.referrerPolicy = 'no-referrer'
    frame.dataset.role = 'next'
    frame.dataset.origin = new URL(ticket.action).origin
    frame.dataset.computer = cid
    frame.dataset.since = since
    this.next = frame
    this.element.append(frame)
    if (!this.shown || this.shown.dataset.computer !== cid) {
      // Nothing of this computer to look at meanwhile: show it as it comes.
      this.drop(this.shown)
      this.shown = null
    }
    this.enter(frame, ticket)
    clearTimeout(this.timer)
    this.timer = setTimeout(() => this.giveUp(frame), patience)
  }

  /** Posts the ticket into the frame: it then has its cookie and shows its page. */
  enter(frame, { action, ticket }) {
    const form = document.createElement('form')
    form.method = 'post'
    form.action = action
    form.target = frame.name
    form.hidden = true
    const field = document.createElement('input')
    field.name = 'ticket'
    field.value = ticket
    form.append(field)
    document.body.append(form)
    form.submit()
    form.remove()
  }

  hear(e) {
    const frame = [this.next, this.shown].find((f) => f && e.source === f.contentWindow && e.origin === f.dataset.origin)
    if (!frame || typeof e.data !== 'object' || e.data === null || e.data.type !== 'choir.painted') return
    frame.dataset.mode = e.data.mode === 'live' ? 'live' : 'build'
    if (frame === this.next) this.swap()
    this.told.painted(frame.dataset.mode)
  }

  swap() {
    clearTimeout(this.timer)
    const old = this.shown
    this.shown = this.next
    this.next = null
    const focused = document.activeElement === old
    this.shown.dataset.role = 'shown'
    this.drop(old)
    if (focused) this.shown.focus()
  }

  giveUp(frame) {
    if (frame !== this.next) return
    // With nothing else to show, even a page that never said it has painted may be better.
    if (!this.shown) this.swap()
    else {
      this.drop(frame)
      this.next = null
      this.told.failed('The fresh desktop did not paint; the one you see stays.')
    }
  }

  drop(frame) {
    frame?.remove()
  }

  get mode() {
    return this.shown?.dataset.mode ?? ''
  }

  get loading() {
    return this.next !== null
  }
}
