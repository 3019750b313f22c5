// The desktop's iframes. One is shown; a second one may load underneath and replace it once
// it has painted.

import { api, at } from './api.js'
import { Kept } from './kept.js'
import { scheme } from './scheme.js'

const patience = 20_000
const pingEvery = 2000
const missable = 4 // pings that a page may leave unanswered before it counts as hanging

export class Stage {
  /**
   * told has the callbacks painted(mode), failed(words), asked(place, id), of a place of the
   * console that the page asks for, and ailing(kind, words). The last is about the page that is shown, as this browser sees it: kind is 'hung', 'broken',
   * 'silent' or '' (well).
   */
  constructor(element, told) {
    this.element = element
    this.told = told
    this.shown = null
    this.next = null
    this.timer = 0
    this.count = 0
    this.wanted = null // the run that a desktop is to show
    this.kept = new Kept()
    this.ping = { n: 0, answered: 0, at: 0 }
    addEventListener('message', (e) => this.hear(e))
    setInterval(() => this.ask(), pingEvery)
  }

  /**
   * Loads the desktop of a computer; the page shown so far stays until the new
   * one has painted. since: of the dev server that it is asked from. afresh: on
   * an origin that nothing of the old page is left on, its process least of all.
   * kept: the kept build, although the source has a page.
   */
  async load(cid, since = '', afresh = false, kept = false) {
    let ticket
    const number = generation(cid, afresh)
    try {
      ticket = await api('POST', at(cid, `/ticket?generation=${number}`))
    } catch (problem) {
      this.told.failed(problem.words)
      return
    }
    this.drop(this.next)
    const frame = document.createElement('iframe')
    frame.name = `desktop-${++this.count}`
    frame.title = 'Desktop'
    frame.sandbox.add('allow-scripts', 'allow-same-origin', 'allow-forms', 'allow-downloads')
    // Named, because the frame gets its page by a form: what it was made with is another origin.
    frame.allow = `clipboard-write ${new URL(ticket.action).origin}`
    frame.referrerPolicy = 'no-referrer'
    frame.dataset.role = 'next'
    frame.dataset.origin = new URL(ticket.action).origin
    frame.dataset.computer = cid
    frame.dataset.generation = number
    frame.dataset.since = since
    if (kept) frame.dataset.kept = 'true'
    this.next = frame
    this.element.append(frame)
    if (!this.shown || this.shown.dataset.computer !== cid) {
      // No page of this computer is shown, so the new one is shown while it loads.
      this.drop(this.shown)
      this.shown = null
    }
    this.enter(frame, ticket)
    clearTimeout(this.timer)
    this.timer = setTimeout(() => this.giveUp(frame), patience)
  }

  /** Loads the desktop of a computer whose source was taken back: what its pages of before left is not sent by itself. */
  async loadBack(cid) {
    const number = generation(cid, true)
    this.kept.tookBack(cid, number)
    await this.load(cid)
  }

  /** Posts the ticket into the frame, which gets its cookie by that and shows its page. */
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
    if (frame.dataset.kept) {
      const which = document.createElement('input')
      which.name = which.value = 'kept'
      form.append(which)
    }
    document.body.append(form)
    form.submit()
    form.remove()
  }

  hear(e) {
    const frame = [this.next, this.shown].find((f) => f && e.source === f.contentWindow && e.origin === f.dataset.origin)
    if (!frame || typeof e.data !== 'object' || e.data === null) return
    switch (e.data.type) {
      case 'choir.painted':
        frame.dataset.mode = e.data.mode === 'live' ? 'live' : 'build'
        if (frame === this.next) this.swap()
        this.told.ailing('', '')
        this.told.painted(frame.dataset.mode)
        this.showRun()
        return
      case 'choir.broken':
        if (frame === this.shown || !this.shown) this.told.ailing('broken', firstLine(e.data.detail))
        return
      case 'choir.pong':
        if (frame !== this.shown || e.data.n !== this.ping.n) return
        if (this.ping.n - this.ping.answered > missable) this.told.ailing('', '')
        this.ping.answered = this.ping.n
        return
      case 'choir.keep':
        this.kept.put(frame.dataset.computer, Number(frame.dataset.generation), e.data.name, e.data.value, e.data.item)
        return
      case 'choir.scheme':
        if (e.data.scheme === 'light' || e.data.scheme === 'dark') frame.dataset.scheme = e.data.scheme
        if (frame === this.shown) scheme.take(frame.dataset.scheme)
        return
      case 'choir.open':
        if (frame === this.shown) this.told.asked(String(e.data.place).slice(0, 20), String(e.data.id).slice(0, 64))
        return
      case 'choir.recall':
        this.say(frame, { type: 'choir.recalled', kept: this.kept.all(frame.dataset.computer) })
    }
  }

  /** Pings the page that is shown. Only pings that this page sent on time count: a tab in the background sends them late. */
  ask() {
    const { ping } = this
    const now = performance.now()
    const late = now - ping.at > 2 * pingEvery
    ping.at = now
    if (!this.shown?.dataset.mode || document.visibilityState === 'hidden' || late) {
      ping.answered = ping.n
      return
    }
    ping.n++
    this.say(this.shown, { type: 'choir.ping', n: ping.n })
    if (ping.n - ping.answered > missable) this.told.ailing('hung', '')
  }

  say(frame, message) {
    frame.contentWindow?.postMessage(message, frame.dataset.origin)
  }

  /** Has the desktop of a computer show one of its runs, once it has painted. */
  run(cid, run) {
    this.wanted = { cid, run }
    this.showRun()
  }

  showRun() {
    if (!this.wanted || !this.shown?.dataset.mode || this.shown.dataset.computer !== this.wanted.cid) return
    this.shown.focus()
    this.say(this.shown, { type: 'choir.open', run: this.wanted.run })
    this.wanted = null
  }

  /** Focuses the desktop's prompt bar. */
  prompt() {
    if (!this.shown) return
    this.shown.focus()
    this.say(this.shown, { type: 'choir.prompt' })
  }

  swap() {
    clearTimeout(this.timer)
    const old = this.shown
    this.shown = this.next
    this.next = null
    this.ping.answered = this.ping.n
    const focus = document.activeElement === old || (!old && document.activeElement === document.body)
    this.shown.dataset.role = 'shown'
    scheme.take(this.shown.dataset.scheme)
    this.drop(old)
    if (focus) this.shown.focus()
    // The new page gets the text that was being typed into the old one, and the focus if it
    // had it.
    this.say(this.shown, { type: 'choir.shown', focus, bar: this.kept.all(this.shown.dataset.computer).bar ?? null })
  }

  giveUp(frame) {
    if (frame !== this.next) return
    // With nothing else to show, even a page that never reported that it has painted may be
    // better.
    if (!this.shown) {
      this.swap()
      this.told.ailing('silent', '')
    } else {
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

const generations = new Map() // where there is no storage: they last as long as this page

/** Which of a desktop's origins this browser uses; a new one from now on, if afresh is set. */
function generation(cid, afresh) {
  const key = `choir.generation.${cid}`
  let n = generations.get(cid) ?? 0
  try {
    n = Math.max(n, Number(localStorage.getItem(key)) || 0)
    if (afresh) localStorage.setItem(key, String(++n))
  } catch {
    if (afresh) generations.set(cid, (n = Math.floor(1 + Math.random() * 999_999))) // a random number, as no other tab knows it
  }
  return Math.min(n, 1_000_000)
}

function firstLine(text) {
  return String(text ?? '').split('\n', 1)[0].slice(0, 300)
}
