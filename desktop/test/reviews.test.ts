import { beforeEach, describe, expect, it, vi } from 'vitest'
import { draftKey, noDraft, readDraft, useReviews } from '../src/stores/reviews'
import { event } from './fake'

const store = () => useReviews.getState()
const key = (task: string, review = 1) => draftKey('r', { task, attempt: 1, review })
const draft = { left: ['b.md'], comments: [{ text: 'shorter' }], writing: { 'a.md\n3': { path: 'a.md', line: 3, quote: 'x', text: 'why' } } }
let kept: Record<string, string> = {}

beforeEach(() => {
  kept = {}
  // Object.keys of it are its items, as of a page's storage.
  const methods = { getItem: (k: string) => kept[k] ?? null, setItem: (k: string, v: string) => void (kept[k] = v), removeItem: (k: string) => void delete kept[k] }
  vi.stubGlobal('localStorage', new Proxy(methods, { ownKeys: () => Object.keys(kept), getOwnPropertyDescriptor: () => ({ enumerable: true, configurable: true }) }))
  useReviews.setState({ drafts: {} })
})

describe('what is chosen in a review', () => {
  it('is in the storage of the page, by run, task, attempt and review', async () => {
    store().change(key('t'), () => draft)
    expect(store().drafts[key('t')]).toEqual(draft)
    expect(store().drafts[key('t', 2)]).toBeUndefined()
    // A page that is loaded now has it.
    vi.resetModules()
    delete (globalThis as { __choir?: unknown }).__choir
    const { useReviews: fresh } = await import('../src/stores/reviews')
    expect(fresh.getState().drafts).toEqual({ [key('t')]: draft })
  })

  it('is forgotten once it was answered, and when the run ends', () => {
    for (const task of ['t', 'u']) store().change(key(task), () => draft)
    store().take(event(1, 'review.answered', {}, { run: 'r', task: 't' }))
    expect(Object.keys(store().drafts)).toEqual([key('u')])
    expect(Object.keys(kept)).toHaveLength(1)
    store().take(event(2, 'run.reported', {}, { run: 'q' }))
    expect(Object.keys(store().drafts)).toEqual([key('u')])
    store().take(event(3, 'run.reported', {}, { run: 'r' }))
    expect([store().drafts, kept]).toEqual([{}, {}])
  })

  it('is bounded', () => {
    for (let i = 10; i < 40; i++) store().change(key(`t${i}`), () => draft)
    expect(Object.keys(store().drafts)).toHaveLength(20)
    expect(Object.keys(kept)).toHaveLength(20)
    expect(store().drafts[key('t39')]).toEqual(draft)
    store().change(key('t39'), (d) => ({ ...d, comments: [{ text: 'x'.repeat(200_000) }] }))
    expect(Object.keys(kept)).toHaveLength(19)
  })

  it('is read as what it is, and nothing else', () => {
    expect(readDraft(JSON.stringify(draft))).toEqual(draft)
    for (const bad of [null, '', 'x', '7', '[]', '{"left":1,"comments":[]}']) expect(readDraft(bad)).toBeNull()
    expect(readDraft('{"left":[1,"a"],"comments":[{},{"text":7},{"text":"t","line":"1"},{"text":"t"}],"writing":{"":{"text":1}}}')).toEqual({ ...noDraft, left: ['a'], comments: [{ text: 't' }] })
  })
})
