import { beforeEach, describe, expect, it, vi } from 'vitest'

// A sheet without its style, and an API that is shared with another administrator.
const sheet = vi.hoisted(() => ({ told: '' }))
const server = vi.hoisted(() => ({ secrets: new Map<string, string>(), asked: [] as string[], between: () => {} }))
vi.mock('../../console/assets/approvals.js', () => ({ element: (tag: string, text: string) => Object.assign(document.createElement(tag), { textContent: text }) }))
vi.mock('../../console/assets/dialog.js', () => {
  const button = (text: string, f: (() => void) | null) => {
    const b = Object.assign(document.createElement('button'), { textContent: text })
    if (f) b.addEventListener('click', f)
    return b
  }
  class Dialog {
    static open = () => Promise.resolve(new Dialog())
    root = document.createElement('div')
    body = document.createElement('div')
    actions = document.createElement('div')
    title = document.createElement('h2')
    open = true
    constructor() {
      this.root.append(this.title, this.body, this.actions)
      document.body.replaceChildren(this.root)
    }
    close() {}
    say(words: string) { sheet.told = words }
    failed(p: Error) { sheet.told = p.message }
    action(words: string, f: () => void) { const b = button(words, f); this.actions.append(b); return b }
  }
  return { Dialog, button }
})
vi.mock('../../console/assets/api.js', () => ({
  api: (method: string, path: string, body?: { value: string }) => {
    server.asked.push(`${method} ${path}`)
    const ready = server.secrets.get('ACME_API_KEY') === 'good'
    if (path === '/api/models') return Promise.resolve([{ id: 'acme/a', provider: 'acme', key: 'ACME_API_KEY', available: ready, default: false, price_out: 1 }])
    if (path === '/api/secrets') return Promise.resolve([...server.secrets].map(([id, value]) => ({ id, updated: value })))
    if (path === '/api/models/test') {
      const ok = ready
      server.between()
      return Promise.resolve(ok ? { ok, id: 'acme/a', duration_ms: 1 } : { ok, error: 'auth: refused.' })
    }
    if (method === 'PUT') server.secrets.set('ACME_API_KEY', body!.value)
    if (method === 'DELETE') server.secrets.delete('ACME_API_KEY')
    return Promise.resolve(null)
  },
}))

const settle = () => new Promise((r) => setTimeout(r, 20))
async function paste(key: string) {
  const field = document.querySelector<HTMLInputElement>('input[type=password]')!
  field.value = key
  document.querySelector('form')!.dispatchEvent(new Event('submit', { cancelable: true }))
  await settle()
}

describe('a key that was stored by somebody else', () => {
  beforeEach(async () => {
    server.secrets.clear()
    server.between = () => {}
    // @ts-expect-error the console's assets have no types
    const { connect } = (await import('../../console/assets/connect.js')) as { connect: (of: object) => Promise<void> }
    await connect({ reload: () => {} })
    await settle()
  })
  it('is not removed by a sheet that was opened before', async () => {
    server.secrets.set('ACME_API_KEY', 'good') // another administrator, or choir secrets set
    await paste('bad')
    expect(sheet.told).not.toContain('runs go on as before')
    expect([...server.secrets.keys()]).toEqual(['ACME_API_KEY'])
  })
  it('is not removed when it came while the test of a bad one was under way', async () => {
    server.between = () => server.secrets.set('ACME_API_KEY', 'good')
    await paste('bad')
    expect(server.secrets.get('ACME_API_KEY')).toBe('good')
  })
})
