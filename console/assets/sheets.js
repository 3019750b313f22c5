// The sheets of the account menu, loaded when it is opened. What they do is asked of the API by the person who is signed in:
// no page that agents write reaches them.

import { api, at } from './api.js'
import { element } from './approvals.js'
import { connect } from './connect.js'
import { button, Dialog, facts, moment } from './dialog.js'
import { link, sessions } from './signedin.js'

const sheets = { connect, link, sessions, rename, storage, doctor, stop }

/** Opens a sheet. of has cid and frame, of the computer that is shown, account, version, and note(text). */
export async function open(name, of) {
  await sheets[name](of)
}

async function rename({ cid, frame, note }) {
  const sheet = await Dialog.open('Rename this computer', 'Its files, its history and the address of its desktop stay as they are.')
  const form = document.createElement('form')
  form.id = 'rename'
  const label = element('label', 'Name')
  const field = document.createElement('input')
  Object.assign(field, { required: true, maxLength: 100, autocomplete: 'off', value: frame?.computer.name ?? '' })
  label.append(field)
  form.append(label)
  sheet.body.append(form)
  sheet.action('Cancel', () => sheet.close())
  const save = sheet.action('Rename', null, true)
  Object.assign(save, { type: 'submit' })
  save.setAttribute('form', form.id)
  form.addEventListener('submit', async (e) => {
    e.preventDefault()
    save.disabled = true
    try {
      await api('PATCH', at(cid, ''), { name: field.value.trim() })
      sheet.close()
      note(`This computer is called ${field.value.trim()} now.`)
    } catch (problem) {
      sheet.failed(problem)
    }
    save.disabled = false
  })
  field.select()
}

async function storage({ cid, account }) {
  const sheet = await Dialog.open('Storage')
  sheet.scrolls()
  const close = sheet.action('Close', () => sheet.close(), true)
  close.focus()
  sheet.say('Measuring…')
  const may = account?.powers?.includes('machine')
  const [last, found] = await Promise.allSettled([api('GET', at(cid, '/checkpoints?limit=1')), may ? api('GET', '/api/doctor') : []])
  if (!sheet.open) return
  sheet.say('')
  const rows = []
  if (found.status === 'fulfilled') {
    const said = (id) => found.value.find((f) => f.id === id)?.detail
    for (const [name, words] of [['This computer', said(`storage ${cid}`)], ['All of ChoirOS', said('storage')], ['Free', said('space')], ['Shared', said('dependencies')], ['Reserve', said('reserve')]]) if (words) rows.push([name, sentence(words)])
  } else sheet.failed(found.reason)
  if (last.status === 'fulfilled') {
    const [c] = last.value
    rows.push(['Last checkpoint', c ? `${moment(c.time)}, ${c.files} ${c.files === 1 ? 'file' : 'files'} changed: ${c.message}` : 'There is none yet.'])
  } else sheet.failed(last.reason)
  sheet.body.append(facts(rows))
  if (!may) sheet.body.append(element('p', 'What the machine uses is told to whoever looks after it.'))
}

const marks = { ok: ['✓', 'All right'], warn: ['!', 'Worth knowing'], fail: ['✕', 'Missing or damaged'] }

async function doctor({ version }) {
  const sheet = await Dialog.open('Version and doctor', `${version}. What this machine provides:`)
  sheet.scrolls()
  const list = document.createElement('ul')
  sheet.body.append(list)
  const look = async () => {
    again.disabled = true
    sheet.say('Looking…')
    try {
      const found = (await api('GET', '/api/doctor')).filter((f) => !f.id.startsWith('storage'))
      list.replaceChildren(...found.map(finding))
      const fails = found.filter((f) => f.status === 'fail').length
      const warns = found.filter((f) => f.status === 'warn').length
      const rest = warns > 0 ? `${warns} ${warns === 1 ? 'thing is' : 'things are'} worth knowing.` : ''
      sheet.say(`${fails > 0 ? `${fails} of ${found.length} missing or damaged.` : 'Nothing is missing or damaged.'} ${rest} Looked at ${new Date().toLocaleTimeString()}.`, fails > 0 ? 'danger' : '')
    } catch (problem) {
      sheet.failed(problem)
    }
    again.disabled = false
  }
  const again = sheet.action('Check again', look)
  sheet.action('Close', () => sheet.close(), true).focus()
  await look()
}

function finding({ id, status, detail, hint }) {
  const row = document.createElement('li')
  row.dataset.status = status
  const [mark, words] = marks[status] ?? marks.warn
  const sign = element('span', mark)
  sign.className = 'sign'
  sign.setAttribute('role', 'img')
  sign.setAttribute('aria-label', words)
  const text = document.createElement('div')
  text.append(element('h3', id.replaceAll('-', ' ')), element('p', sentence(detail)))
  if (hint) {
    const small = element('p', hint)
    small.className = 'good'
    text.append(small)
  }
  row.append(sign, text)
  return row
}

async function stop({ frame }) {
  const sheet = await Dialog.open('Stop ChoirOS?')
  sheet.scrolls()
  const runs = frame?.running.length ?? 0
  const commands = frame?.commands?.length ?? 0
  const now = [runs > 0 && `${runs} ${runs === 1 ? 'run' : 'runs'}`, commands > 0 && `${commands} ${commands === 1 ? 'command' : 'commands'} of yours`].filter(Boolean).join(' and ')
  sheet.body.append(
    facts([
      ['Ends', `This page and every desktop, for everybody on this machine.${now ? ` In this computer ${now} ${runs + commands === 1 ? 'is' : 'are'} under way.` : ''} A command that runs is ended.`],
      ['Goes on', 'Runs are in the log and go on at the next start. Files, checkpoints and what was said stay. Nothing works meanwhile, and nothing is sent.'],
      ['To start again', 'choir up in a terminal of this machine, with --data or --config if you gave it one.'],
    ]),
  )
  const keep = sheet.action('Keep it running', () => sheet.close())
  const yes = button('Stop ChoirOS', async () => {
    keep.disabled = yes.disabled = true
    sheet.say('Stopping…')
    try {
      await api('POST', '/api/stop')
    } catch (problem) {
      if (problem.status !== 0) { // without an answer it may have ended already
        sheet.failed(problem)
        keep.disabled = yes.disabled = false
        return
      }
    }
    await gone()
    sheet.title.textContent = 'ChoirOS has stopped'
    sheet.body.replaceChildren(element('p', 'Everything is stored. Start it again with choir up, in a terminal of this machine; this page then goes on by itself.'))
    sheet.say('')
    sheet.actions.replaceChildren(button('Close', () => sheet.close()))
    sheet.title.focus()
  })
  yes.className = 'stops'
  sheet.actions.append(yes)
  keep.focus()
}

/** Waits until the control plane answers no more. */
async function gone() {
  for (;;) {
    try {
      await fetch('/health', { cache: 'no-store' })
    } catch {
      return
    }
    await new Promise((r) => setTimeout(r, 250))
  }
}

function sentence(words) {
  const text = words.charAt(0).toUpperCase() + words.slice(1)
  return /[.!?]$/.test(text) ? text : `${text}.`
}
