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
  }
})
