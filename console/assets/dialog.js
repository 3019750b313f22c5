// What all sheets of the account menu have in common: a dialog that has the cursor until it is closed, with words for what
// happens in it. It is loaded with the first of them.

import { element } from './approvals.js'

const $ = (id) => document.getElementById(id)
let styles = null

/** Loads what the sheets look like, once. */
function dressed() {
  styles ??= new Promise((resolve, reject) => {
    const link = document.createElement('link')
    link.rel = 'stylesheet'
    link.href = '/assets/sheets.css'
    link.addEventListener('load', resolve)
    link.addEventListener('error', () => {
      styles = null
      link.remove()
      reject(new Error('What this sheet looks like could not be loaded. Nothing was changed. Try it again.'))
    })
    document.head.append(link)
  })
  return styles
}

export class Dialog {
  /** Opens a dialog with a title and what it is for. */
  static async open(title, about) {
    await dressed()
    return new Dialog(title, about)
  }

  constructor(title, about) {
    this.root = document.createElement('dialog')
    this.root.className = 'card of-account'
    this.title = element('h2', title)
    this.title.id = 'of-account-title'
    this.title.tabIndex = -1
    this.root.setAttribute('aria-labelledby', this.title.id)
    this.body = document.createElement('div')
    this.body.className = 'body'
    this.told = element('p', '')
    this.told.className = 'told'
    this.told.setAttribute('role', 'status')
    this.actions = document.createElement('div')
    this.actions.className = 'actions'
    this.root.append(this.title, ...(about ? [element('p', about)] : []), this.body, this.told, this.actions)
    // Escape closes it, as every dialog; what was typed goes with it, and the cursor back to the menu's button.
    this.root.addEventListener('close', () => {
      this.root.remove()
      $('account').focus()
    })
    document.body.append(this.root)
    this.root.showModal()
  }

  get open() {
    return this.root.open
  }

  close() {
    this.root.close()
  }

  /** What is read and may be longer than the window is scrolled by keys, too. */
  scrolls() {
    this.body.tabIndex = 0
    this.body.setAttribute('role', 'group')
    this.body.setAttribute('aria-labelledby', this.title.id)
  }

  /** Says what happened, in the place for it. */
  say(words, tone = '') {
    this.told.textContent = words
    this.told.dataset.tone = tone
  }

  failed(problem) {
    this.say(problem.words ?? problem.message, 'danger')
  }

  /** Adds a button to the end of the sheet. */
  action(words, f, primary = false) {
    const b = button(words, f)
    if (primary) b.className = 'primary'
    this.actions.append(b)
    return b
  }
}

export function button(words, f) {
  const b = element('button', words)
  b.type = 'button'
  b.addEventListener('click', f)
  return b
}

/** A list of names and what they are, such as facts. */
export function facts(rows) {
  const list = document.createElement('dl')
  for (const [name, value] of rows) {
    const row = document.createElement('div')
    row.append(element('dt', name), element('dd', value))
    list.append(row)
  }
  return list
}

/** An hour of today, or a day and an hour. */
export function moment(time) {
  const when = new Date(time)
  const today = when.toDateString() === new Date().toDateString()
  return when.toLocaleString([], { ...(today ? {} : { day: 'numeric', month: 'short' }), hour: '2-digit', minute: '2-digit' })
}

/** How long ago, as somebody would say it. */
export function ago(time) {
  const minutes = Math.max(0, Math.round((Date.now() - new Date(time)) / 60_000))
  if (minutes < 2) return 'just now'
  if (minutes < 60) return `${minutes} minutes ago`
  return minutes < 1440 ? `at ${moment(time)}` : moment(time)
}
