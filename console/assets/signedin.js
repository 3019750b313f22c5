// Who is signed in to this account: a link for one more browser, and the browsers that there are.

import { api } from './api.js'
import { element } from './approvals.js'
import { ago, button, Dialog, moment } from './dialog.js'

const svg = 'http://www.w3.org/2000/svg'

export async function link() {
  const sheet = await Dialog.open('Link for another device')
  const close = sheet.action('Close', () => sheet.close(), true)
  close.focus()
  sheet.say('Making a link…')
  let made
  try {
    made = await api('POST', '/api/sessions/link')
  } catch (problem) {
    sheet.failed(problem)
    return
  }
  const { url, expires, qr } = made
  const label = element('label', 'Link')
  const field = document.createElement('input')
  Object.assign(field, { readOnly: true, value: url, spellcheck: false })
  field.addEventListener('focus', () => field.select())
  label.append(field)
  const row = document.createElement('div')
  row.className = 'with'
  const copy = button('Copy', async () => {
    try {
      await navigator.clipboard.writeText(url)
      sheet.say('Copied.')
    } catch {
      field.select()
      sheet.say('This browser did not let the console copy it. It is marked: copy it with the keyboard.')
    }
  })
  row.append(label, copy)
  const minutes = Math.max(1, Math.round((new Date(expires) - Date.now()) / 60_000))
  const words = document.createElement('div')
  words.append(
    element('p', `It signs in once, until ${moment(expires)} (in ${minutes} minutes). Whoever opens it first is you here: show it to nobody else.`),
    ...(here(url) ? [element('p', 'It leads to this machine itself, where ChoirOS listens. A browser here opens it as it is. Another device needs a way here first, with this machine’s name in the end:'), element('code', `ssh -N -L ${port(url)}:127.0.0.1:${port(url)} NAME`)] : []),
  )
  words.className = 'good'
  sheet.body.append(drawn(qr), row, words)
  sheet.say('')
  copy.focus()
}

/** Whether an address means whichever machine it is opened on. */
const here = (url) => /(^|\.)localhost$|^127\./.test(new URL(url).hostname)

const port = (url) => new URL(url).port || '80'

function drawn({ size, path }) {
  const code = document.createElementNS(svg, 'svg')
  code.setAttribute('viewBox', `0 0 ${size} ${size}`)
  code.setAttribute('class', 'qr')
  code.setAttribute('role', 'img')
  code.setAttribute('aria-label', 'The link as a QR code')
  const dark = document.createElementNS(svg, 'path')
  dark.setAttribute('d', path)
  code.append(dark)
  return code
}

export async function sessions() {
  const sheet = await Dialog.open('Sessions', 'Browsers that are signed in to your account on this machine.')
  const list = document.createElement('ul')
  sheet.body.append(list)
  const others = () => [...list.querySelectorAll('[data-other]')].map((row) => row.dataset.session)
  const end = async (ids, done) => {
    const ended = await Promise.allSettled(ids.map((id) => api('DELETE', `/api/sessions/${id}`)))
    const failed = ended.find((e) => e.status === 'rejected' && e.reason.status !== 404) // 404: it has ended already
    await look(failed ? '' : done)
    if (failed) sheet.failed(failed.reason)
    if (sheet.open) sheet.title.focus()
  }
  const all = sheet.action('Sign out all others', () => end(others(), 'All others are signed out.'))
  const look = async (words) => {
    try {
      const found = await api('GET', '/api/sessions')
      list.replaceChildren(...found.map((s) => row(s, () => end([s.id], `${s.device || 'The browser'} is signed out.`))))
      sheet.say(words)
    } catch (problem) {
      sheet.failed(problem)
    }
    all.hidden = others().length === 0
  }
  sheet.action('Close', () => sheet.close(), true).focus()
  all.hidden = true
  sheet.say('Looking…')
  await look('')
}

function row({ id, device, since, used, this: own }, end) {
  const card = document.createElement('li')
  card.dataset.session = id
  if (!own) card.dataset.other = ''
  const text = document.createElement('div')
  const name = element('h3', device || 'A browser')
  name.id = `session-${id}`
  if (own) {
    const mark = element('span', 'this one')
    mark.className = 'mark-own'
    name.append(' ', mark)
  }
  text.append(name, element('p', `Signed in ${moment(since)}, last used ${ago(used)}.`))
  card.append(text)
  if (!own) {
    const out = button('Sign out', end)
    out.setAttribute('aria-describedby', name.id)
    card.append(out)
  }
  return card
}
