// Requests to the console's own API. A problem (RFC 9457) becomes a Problem.

export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || body.title || `The answer was ${status}.`)
    this.status = status
    this.code = body.code || 'internal'
    this.hint = body.hint || ''
  }

  get words() {
    return this.hint ? `${this.message} ${this.hint}` : this.message
  }
}

export async function api(method, path, body) {
  let response
  try {
    response = await fetch(path, {
      method,
      credentials: 'same-origin',
      cache: 'no-store',
      headers: { accept: 'application/json', ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    })
  } catch {
    throw new Problem(0, { code: 'unavailable', detail: 'The control plane does not answer.', hint: 'Is choir up still running?' })
  }
  const text = await response.text()
  let value = null
  try {
    value = text ? JSON.parse(text) : null
  } catch {
    if (response.ok) throw new Problem(response.status, { detail: 'The answer is not JSON.' })
  }
  if (!response.ok) throw new Problem(response.status, value || {})
  return value
}

export const at = (cid, rest) => `/api/computers/${encodeURIComponent(cid)}${rest}`
