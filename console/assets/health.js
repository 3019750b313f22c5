// What the frame says of a desktop that is down, and the ways to repair it: for everybody
// (as the control plane judged it) or in this browser only (as this page saw it).

import { api, at } from './api.js'

const $ = (id) => document.getElementById(id)
const rewindAfter = 5

export class Health {
  /** told has the callbacks note(text, tone, ms) and failed(problem). */
  constructor(stage, told) {
    this.stage = stage
    this.told = told
    this.cid = ''
    this.desktop = null
    this.here = { kind: '', words: '' } // the page's state in this browser
    this.left = '' // the broken state that the person chose to keep
    this.soon = 0
    this.countdown = 0
    this.recovering = 0 // a timer: while the page loads after a rewind, the broken state reported is still the old page's
    this.back = null // the message to show once a new page has reported that it works
    $('down-rewind').addEventListener('click', () => this.rewind())
    $('down-afresh').addEventListener('click', () => this.afresh())
    $('down-kept').addEventListener('click', () => {
      this.left = $('down').dataset.key
      this.draw()
      this.stage.load(this.cid, '', true, true)
    })
    $('down-leave').addEventListener('click', () => {
      this.left = $('down').dataset.key
      this.draw()
    })
  }

  open(cid) {
    Object.assign(this, { cid, desktop: null, left: '', back: null, here: { kind: '', words: '' } })
    this.draw()
  }

  /** Shows what the control plane knows. */
  show(desktop) {
    this.desktop = desktop
    if (!desktop.broken) this.settle()
    // What is wrong with the source although there is a page of it.
    const wrong = desktop.broken ? '' : desktop.reason
    $('source').hidden = !wrong
    $('source').textContent = wrong ? `The desktop’s source has an error; what you see is from before it. ${wrong}` : ''
    this.draw()
  }

  /** Shows what this browser sees of its own page. */
  ailing(kind, words) {
    if (kind === this.here.kind) return
    this.here = { kind, words }
    if (kind === '' && this.left.startsWith('here ')) this.left = ''
    // If the page is broken for everybody, the control plane says so in a moment.
    clearTimeout(this.soon)
    if (kind === 'broken') this.soon = setTimeout(() => this.draw(), 2500)
    else this.draw()
  }

  /** A page has reported that it is painted. */
  painted() {
    if (this.back && !this.stage.loading) {
      this.told.note(...this.back)
      this.back = null
    }
  }

  /** The page that was loading did not appear: what is known is about the old one. */
  gaveUp() {
    this.back = null
    this.settle()
    this.draw()
  }

  settle() {
    clearTimeout(this.recovering)
    this.recovering = 0
  }

  words() {
    const { desktop, here } = this
    const good = desktop?.last_good
    const back = good && `Checkpoint ${good.slice(0, 8)} is the last one that worked. Only the desktop goes back; your files stay, and this can be undone.`
    if (desktop?.broken) {
      return {
        key: `all ${desktop.reason} ${good} ${desktop.run} ${desktop.auto}`,
        title: 'The desktop is down',
        why: desktop.reason || 'Its page is blank or stopped with an error.',
        good: back || 'No checkpoint is known to have worked, so there is nothing to go back to. Your files are safe.',
        afresh: false,
      }
    }
    const kept = 'Starting it afresh loses nothing: what you typed and what waits to be sent is kept here.'
    switch (here.kind) {
      case 'hung':
        return { key: 'here hung', title: 'The desktop does not answer', why: 'Its page hangs in this browser, or this machine is very busy.', good: kept, afresh: true }
      case 'broken':
        return { key: `here broken ${here.words}`, title: 'The desktop stopped in this browser', why: here.words || 'Its page is blank.', good: `Another page of it is well. ${kept}`, afresh: true }
      case 'silent':
        return { key: 'here silent', title: 'The desktop did not come up here', why: 'Its page has said nothing for 20 seconds: the line is slow, or its scripts are blocked. That harms nobody else.', good: '', afresh: true }
    }
    return null
  }

  draw() {
    const say = this.recovering ? null : this.words()
    if (!this.desktop?.broken && this.left.startsWith('all ')) this.left = ''
    if (!say || say.key === this.left) {
      $('down').hidden = true
      this.stop()
      return
    }
    if (!$('down').hidden && $('down').dataset.key === say.key) return
    $('down').dataset.key = say.key
    $('down-title').textContent = say.title
    $('down-why').textContent = say.why
    $('down-good').textContent = say.good
    $('down-good').hidden = !say.good
    $('down-afresh').hidden = !say.afresh
    $('down-rewind').hidden = !this.desktop?.last_good
    $('down-kept').hidden = !this.desktop?.broken
    $('down-rewind').classList.toggle('primary', !say.afresh)
    $('down').hidden = false
    this.stop()
    if (say.afresh) $('down-afresh').focus()
    else $('down-rewind').focus()
    if (this.desktop?.broken && this.desktop.auto && this.desktop.last_good) this.count(rewindAfter)
  }

  stop() {
    clearInterval(this.countdown)
    this.countdown = 0
    $('down-rewind').textContent = 'Rewind'
  }

  /**
   * A task's edit that no check has passed broke the desktop. Nobody asked for a broken
   * desktop, so it is rewound after a few seconds unless the person stops it.
   */
  count(seconds) {
    const tell = () => ($('down-rewind').textContent = `Rewind (${seconds})`)
    tell()
    this.countdown = setInterval(() => {
      seconds--
      tell()
      if (seconds <= 0) this.rewind(true)
    }, 1000)
  }

  /** Loads a new page in place of one that hangs or has stopped. */
  async afresh() {
    this.left = $('down').dataset.key
    this.draw()
    this.back = ['The desktop has started afresh.']
    await this.stage.load(this.cid, '', true)
  }

  /** Rewinds the desktop; unasked when a task's edit broke it and nobody chose to keep that. */
  async rewind(unasked = false) {
    clearInterval(this.countdown)
    this.countdown = 0
    $('down-rewind').disabled = true
    $('down-rewind').textContent = 'Rewinding…'
    try {
      const { to } = await api('POST', at(this.cid, '/rewind'), { to: this.desktop.last_good, unasked })
      this.told.note('The desktop’s source went back; its page loads.')
      this.back = unasked
        ? [`An agent’s edit broke the desktop, so it went back by itself, to checkpoint ${to.slice(0, 8)}. The edit is kept: Time Travel can undo this.`, '', 60_000]
        : ['The desktop is back. Time Travel can undo this.']
      this.settle()
      this.recovering = setTimeout(() => {
        this.settle()
        this.draw()
      }, 25_000)
      this.draw()
      await this.stage.loadBack(this.cid)
    } catch (problem) {
      this.told.failed(problem)
      // If it was not refused it may have gone back all the same: then no page sends by itself what this one left.
      if (!(problem.status >= 400 && problem.status < 500)) await this.stage.loadBack(this.cid)
    } finally {
      $('down-rewind').disabled = false
      $('down-rewind').textContent = 'Rewind'
    }
  }
}
