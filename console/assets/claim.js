import { api } from './api.js'

const $ = (id) => document.getElementById(id)

// The token stands in the fragment, which no server is sent; it leaves the
// address bar at once and is used up only by the button.
const token = location.hash.slice(1)
history.replaceState(null, '', location.pathname)
$(token ? 'fresh' : 'signin').hidden = false
if (token) $('name').select()

$('claim').addEventListener('submit', async (e) => {
  e.preventDefault()
  const name = $('name').value.trim()
  if (!name) return
  $('go').disabled = true
  $('fault').hidden = true
  try {
    await api('POST', '/api/claim', { token, name })
    location.replace('/')
  } catch (problem) {
    $('fault').textContent = problem.words ?? String(problem)
    $('fault').hidden = false
    $('go').disabled = false
    if (problem.status === 401 || problem.status === 403) await wayOn()
  }
})

/** A link that has been used: whoever used it here is signed in already. */
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

// Signed in here already: no link is needed.
if (!token) api('GET', '/api/account').then(() => ($('already').hidden = false), () => {}) // only then is there another way
