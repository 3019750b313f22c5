// Since when all is well, from what is known and no more: since its parts run without having been started again, and the
// log's last word that the desktop broke. It is loaded with the question before a rewind.

import { api, at } from './api.js'
import { moment } from './dialog.js'

/** One or two sentences on how a computer is; desktop is what the frame says of its desktop. */
export async function well(cid, desktop) {
  if (desktop.broken) return `The desktop is down. ${desktop.reason ?? ''}`.trim()
  if (desktop.reason) return `The desktop’s source has an error: ${desktop.reason}`
  const [status, broke] = await Promise.all([api('GET', '/api/status'), lastBroke(cid)])
  const computer = status.computers.find((c) => c.id === cid)
  if (!computer?.parts?.length) return 'It is not known since when all is well.'
  const ill = computer.parts.filter((p) => p.state === 'failed' || p.state === 'restarting')
  if (computer.trouble || ill.length > 0) return `Not all is well: ${computer.trouble?.reason ?? `${ill[0].name} ${ill[0].state === 'failed' ? 'has failed' : 'is started again'}`}.`
  const times = (parts) => parts.filter((p) => p.since).map((p) => Date.parse(p.since))
  const since = Math.max(Math.min(...times(computer.parts)), ...times(computer.parts.filter((p) => p.restarts > 0)))
  if (broke > since) return `All is well now. The desktop broke last at ${moment(broke)}.`
  return `All is well since ${moment(since)}.`
}

/** When the log says last that the desktop broke; 0: it never did. */
async function lastBroke(cid) {
  const response = await fetch(at(cid, '/events?type=desktop.broke'), { credentials: 'same-origin', cache: 'no-store' })
  if (!response.ok) throw new Error('The log could not be read.')
  const last = (await response.text()).trim().split('\n').at(-1)
  return last ? Date.parse(JSON.parse(last).time) : 0
}
