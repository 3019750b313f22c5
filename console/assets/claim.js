import { api } from './api.js'
import { systems } from './scheme.js'

const $ = (id) => document.getElementById(id)

// The token is in the URL's fragment, which browsers send to no server. It is removed from
// the address bar at once, and only the button uses it up.
const token = location.hash.slice(1)
// An account that was claimed before only signs in: nothing is named any more.
const again = location.search === '?again'
history.replaceState(null, '', location.pathname)
$(token ? 'fresh' : 'signin').hidden = false
if (again) {
  $('welcome').textContent = 'Welcome back.'
  $('named').textContent = 'This link signs this browser in, once.'
  $('go').textContent = 'Sign in'
  for (const id of ['name', 'name-label']) $(id).hidden = true
  $('name').required = false
  $('name').value = ''
}
if (token) $(again ? 'go' : 'name').focus()
if (token && !again) $('name').select()

$('claim').addEventListener('submit', async (e) => {
  e.preventDefault()
  const name = $('name').value.trim()
  if (!name && !again) return
  $('go').disabled = true
  $('fault').hidden = true
  try {
    await api('POST', '/api/claim', again ? { token } : { token, name, scheme: systems() })
    location.replace('/')
  } catch (problem) {
    $('fault').textContent = problem.words ?? String(problem)
    $('fault').hidden = false
    $('go').disabled = false
    if (problem.status === 401 || problem.status === 403) await wayOn()
  }
})

/** The link was used already: if this browser is signed in, it says where to go on. */
async function wayOn() {
  $('go').disabled = true
  try {
    await api('GET', '/api/account')
    $('onward').hidden = false
    $('onward-link').focus()
  } catch {
    $('another').hidden = false
  }
}

// This browser is signed in already, so no link is needed.
if (!token) api('GET', '/api/account').then(() => ($('already').hidden = false), () => {}) // the other way is shown only when signed in
