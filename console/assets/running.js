// The list of what runs: runs and the user's own commands, each with Stop until it ends,
// whoever started it and whether or not its window is open.

import { api, at } from './api.js'

const $ = (id) => document.getElementById(id)

export class Running {
  /** told has the callback failed(problem). */
  constructor(told) {
    this.told = told
    this.cid = ''
    this.all = []
    this.stopping = new Set()
    $('stop').addEventListener('click', () => this.all[0] && this.stop(this.all[0]))
  }

  show(cid, frame) {
    this.cid = cid
    this.all = [
      ...frame.running.map((r) => ({ id: r.id, kind: 'runs', words: r.objective || r.prompt, title: r.prompt })),
      ...(frame.commands ?? []).map((c) => ({ id: c.id, kind: 'commands', words: c.line, title: c.line })),
    ]
    const known = new Set(this.all.map((x) => x.id))
    for (const id of this.stopping) if (!known.has(id)) this.stopping.delete(id)
    this.draw()
  }

  draw() {
    const [first, ...rest] = this.all
    $('running').hidden = !first
    $('running-none').hidden = Boolean(first)
    if (first) {
      $('running-text').textContent = rest.length > 0 ? `${first.words} and ${rest.length} more` : first.words
      $('running-text').title = first.title
      $('stop').disabled = this.stopping.has(first.id)
      $('stop').setAttribute('aria-label', `Stop ${first.words}`.slice(0, 120))
    }
    // Rows that are there stay: one may have the focus.
    const list = $('running-list')
    const old = new Map([...list.children].map((e) => [e.dataset.id, e]))
    for (const one of this.all) {
      const row = old.get(one.id) ?? this.row(one)
      old.delete(one.id)
      row.querySelector('span').textContent = one.words
      row.querySelector('button').disabled = this.stopping.has(one.id)
      if (!row.isConnected) list.append(row)
    }
    for (const row of old.values()) row.remove()
  }

  row(one) {
    const row = document.createElement('li')
    row.dataset.id = one.id
    row.dataset.kind = one.kind
    const words = document.createElement('span')
    const stop = document.createElement('button')
    stop.type = 'button'
    stop.className = 'small'
    stop.textContent = 'Stop'
    stop.addEventListener('click', () => this.stop(one))
    row.append(words, stop)
    return row
  }

  async stop({ id, kind }) {
    this.stopping.add(id)
    this.draw()
    try {
      await api('POST', at(this.cid, kind === 'runs' ? `/runs/${id}/cancel` : `/commands/${id}/stop`))
    } catch (problem) {
      this.stopping.delete(id)
      this.draw()
      if (problem.status !== 404) this.told.failed(problem) // 404: it has ended
    }
  }
}
