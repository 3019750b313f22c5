// Connecting a model: a provider, its key, one word from it. The key goes to the control plane, which keeps it encrypted; it
// is in no address, and nothing of this page has it once it was sent.

import { api } from './api.js'
import { element } from './approvals.js'
import { button, Dialog } from './dialog.js'

const names = { anthropic: 'Anthropic', openai: 'OpenAI', zai: 'Z.ai (GLM)', kimi: 'Kimi (Moonshot AI)', bedrock: 'Amazon Bedrock' }
const order = Object.keys(names)
const rank = (id) => (order.includes(id) ? order.indexOf(id) : order.length)

/** of has reload(): the desktop's page was told when it was loaded which models there are, and is loaded again for others. */
export async function connect({ reload }) {
  const sheet = await Dialog.open('Connect a model')
  sheet.root.addEventListener('close', () => sheet.connected && reload())
  sheet.action('Close', () => sheet.close()).focus()
  sheet.say('Looking at what there is…')
  let known
  try {
    known = await look()
  } catch (problem) {
    sheet.failed(problem)
    return
  }
  sheet.say('')
  form(sheet, known)
}

/** What is known of models: the providers that take a key, and what runs use now. */
async function look() {
  const [models, secrets] = await Promise.all([api('GET', '/api/models'), api('GET', '/api/secrets')])
  const stored = new Set(secrets.map((s) => s.id))
  const providers = new Map()
  for (const m of models) {
    if (!m.key) continue
    const p = providers.get(m.provider) ?? { id: m.provider, name: names[m.provider] ?? m.provider, key: m.key, stored: stored.has(m.key), ready: false, models: [] }
    p.ready ||= m.available
    p.models.push(m)
    providers.set(m.provider, p)
  }
  return { providers: [...providers.values()].sort((a, b) => rank(a.id) - rank(b.id) || (a.id < b.id ? -1 : 1)), now: models.find((m) => m.default) }
}

const uses = (now) => (!now || now.provider === 'rehearsal' ? 'Runs are rehearsed now: written plans are played, and no model is asked.' : `Runs use ${now.id} now.`)

function form(sheet, { providers, now }) {
  const about = element('p', uses(now))
  const form = document.createElement('form')
  form.id = 'connect'
  form.autocomplete = 'off'
  const group = document.createElement('fieldset')
  group.append(element('legend', 'Provider'))
  const first = providers.find((p) => p.id === now?.provider) ?? providers[0]
  for (const p of providers) {
    const label = document.createElement('label')
    const radio = document.createElement('input')
    Object.assign(radio, { type: 'radio', name: 'provider', value: p.id, checked: p === first })
    const state = element('small', p.ready ? 'connected' : p.stored ? 'has a key' : '')
    label.append(radio, element('span', p.name), state)
    group.append(label)
  }
  const label = element('label', 'Its key')
  const key = document.createElement('input')
  Object.assign(key, { type: 'password', required: true, maxLength: 4096, autocomplete: 'off', spellcheck: false })
  label.append(key)
  const where = element('p', '')
  where.className = 'good'
  where.id = 'connect-where'
  key.setAttribute('aria-describedby', where.id)
  form.append(group, label, where)
  sheet.body.replaceChildren(about, form)
  const chosen = () => providers.find((p) => p.id === form.elements.provider.value)
  const tell = () => {
    const p = chosen()
    const env = p.ready && !p.stored ? ' It can be called already: by a key in the environment of choir up, which counts first, or at an address that wants none.' : ''
    where.textContent = `It is kept encrypted on this machine, as ${p.key}, sent to nobody but where this provider is asked, and never shown again. The test asks for one word.${env}`
  }
  group.addEventListener('change', tell)
  tell()
  const store = button(' Store and test', null)
  store.textContent = 'Store and test'
  store.type = 'submit'
  store.className = 'primary'
  store.setAttribute('form', form.id)
  sheet.actions.append(store)
  form.addEventListener('submit', async (e) => {
    e.preventDefault()
    const value = key.value.trim()
    key.value = ''
    if (!value) return
    store.disabled = true
    sheet.say('Storing the key, and asking for one word…')
    try {
      await tried(sheet, chosen(), value)
    } catch (problem) {
      sheet.failed(problem)
    }
    store.disabled = false
    if (form.isConnected && sheet.open) key.focus()
  })
  ;(form.querySelector('input[type=radio]:checked') ?? key).focus()
}

/** Stores a key and asks for a word with it. One that does not work is not kept, unless another one was or is in its place. */
async function tried(sheet, provider, value) {
  const at = `/api/secrets/${encodeURIComponent(provider.key)}`
  const before = await stored(provider.key) // somebody else may have stored one since the sheet was opened
  await api('PUT', at, { value })
  const ours = await stored(provider.key)
  // What can't be asked is a key that did not work: it is not left behind without a word.
  const test = await ask(provider).catch((problem) => ({ ok: false, error: problem.words ?? problem.message }))
  if (test.ok) {
    done(sheet, provider, test, (await look()).now)
    return
  }
  const why = `${provider.name} did not answer with this key: ${test.error.replace(/^[a-z_]+: /, '').replace(/\.$/, '')}.`
  if (before) {
    sheet.say(`${why} It has taken the place of the one that was stored. Paste another one.`, 'danger')
    return
  }
  const now = await stored(provider.key)
  if (now?.updated !== ours?.updated) {
    sheet.say(`${why} Somebody has stored another one meanwhile, which stays.`, 'danger')
    return
  }
  await api('DELETE', at)
  sheet.say(`${why} The key was not kept, and runs go on as before. Look whether it is whole and of this provider, and paste it again.`, 'danger')
}

/** What is told of a stored key; undefined if there is none. */
const stored = async (key) => (await api('GET', '/api/secrets')).find((s) => s.id === key)

async function ask(provider) {
  const { now } = await look()
  return api('POST', '/api/models/test', { model: toTest(provider, now) })
}

/** The model that is asked: what runs would use, else the provider's that costs least, so that the test is as good as free. */
function toTest(provider, now) {
  if (now?.provider === provider.id) return now.id
  const priced = provider.models.filter((m) => m.price_out > 0).sort((a, b) => a.price_out - b.price_out)
  return priced[0]?.id ?? `${provider.id}/*`
}

function done(sheet, provider, test, now) {
  const soon = test.duration_ms < 100 ? 'at once' : `in ${(test.duration_ms / 1000).toFixed(1)} s`
  const counts = now?.provider === provider.id
    ? `From the next run on ${now.id} is used; nothing need be started again.`
    : `Runs go on with ${now?.id ?? 'what the configuration names'}, which counts before it: choose this one for a prompt with /model ${test.id}, or name it as models.default in the configuration and start ChoirOS again.`
  sheet.connected = true
  sheet.title.textContent = `${provider.name} is connected`
  sheet.body.replaceChildren(element('p', `${test.id} answered ${soon}.`), element('p', counts))
  sheet.say('')
  sheet.actions.replaceChildren(button('Connect another', async () => {
    sheet.title.textContent = 'Connect a model'
    sheet.actions.replaceChildren(button('Close', () => sheet.close()))
    form(sheet, await look())
  }))
  sheet.action('Done', () => sheet.close(), true).focus()
}
