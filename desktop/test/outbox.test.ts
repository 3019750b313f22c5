import { describe, expect, it, vi } from 'vitest'
import { browserShelf, maxPrompt, Outbox, readQueue, type Acknowledged, type Action, type Queued } from '../src/link/outbox'
import { HostError } from '../src/link/protocol'

const move = { window: 'w', frame: { x: 0, y: 0, w: 1, h: 1 }, state: 'normal' as const, z: 1 }

function open(kept: Queued[] = []) {
  let shown: Queued[] = []
  const refused: string[] = []
  const saved = new Map<string, Queued>()
  let gone: (id: string, discarded: boolean) => void = () => {}
  const put = (item: Queued) => saved.set(item.action.id, item)
  const box = new Outbox({ load: () => kept, put, drop: (id) => saved.delete(id), watch: (f) => (gone = f) }, (q) => (shown = q), (_a, e) => refused.push(e.code))
  return { box, shown: () => shown, refused, saved, gone: (id: string, discarded: boolean) => gone(id, discarded) }
}

describe('the outbox', () => {
  it('takes nothing in that could never be sent', async () => {
    const { box, shown, refused } = open()
    await expect(box.post('prompt.submitted', { text: 'é'.repeat(maxPrompt / 2 + 1) })).rejects.toMatchObject({ code: 'invalid', field: 'text' })
    expect(shown()).toEqual([])
    expect(refused).toEqual(['invalid'])
    void box.post('prompt.submitted', { text: 'x'.repeat(maxPrompt) }).catch(() => {})
    expect(shown()).toHaveLength(1)
  })

  it('lets what an older page kept and can’t be sent stand aside of the rest', async () => {
    const poison: Action = { type: 'prompt.submitted', id: 'poison', data: { text: 'x'.repeat(1 << 20) } }
    const fine: Action = { type: 'window.moved', id: 'fine', data: move }
    const { box, shown } = open([poison, fine].map((action) => ({ action, tries: 0, stuck: '' })))
    const sent: string[] = []
    box.connect((a) => {
      sent.push(a.id)
      return Promise.resolve({ sequence: 1 })
    })
    await vi.waitFor(() => expect(shown().map((q) => q.action.id)).toEqual(['poison']))
    expect(sent).toEqual(['fine'])
    expect(shown()[0]!.stuck).toMatch(/longer/)
    box.again('poison')
    expect(shown()[0]!.stuck).not.toBe('')
    // Nor does it take up their room, which is smaller than it.
    await expect(box.post('window.moved', move, { id: 'later' })).resolves.toEqual({ sequence: 1 })
    box.discard('poison')
    expect(shown()).toEqual([])
  })

  it('gives one a limited number of tries, goes on with the others, and sends it again when it is told to', async () => {
    const { box, shown, saved } = open()
    let good = false
    const sent: string[] = []
    const send = (a: Action): Promise<Acknowledged> => {
      sent.push(a.id)
      return a.id === 'bad' && !good ? Promise.reject(new HostError('timeout', 'no answer')) : Promise.resolve({ sequence: 1 })
    }
    const bad = box.post('window.moved', move, { id: 'bad' })
    const next = box.post('window.moved', move, { id: 'next' })
    // The connection breaks at each try, so that no answer is waited for.
    for (let n = 0; n < 10; n++) {
      box.connect(send)
      await Promise.resolve()
      await Promise.resolve()
      box.connect(null)
      await Promise.resolve()
      await Promise.resolve()
    }
    box.connect(send)
    await expect(next).resolves.toEqual({ sequence: 1 })
    expect(sent.filter((id) => id === 'bad').length).toBeLessThanOrEqual(6)
    expect(shown().map((q) => [q.action.id, q.stuck])).toEqual([['bad', 'no answer']])
    expect(readQueue(JSON.stringify([...saved.values()]))).toEqual(shown())
    good = true
    box.again('bad')
    await expect(bad).resolves.toEqual({ sequence: 1 })
  })

  it('keeps what somebody wrote while the disk is full, and says what to free', async () => {
    const { box, shown, refused, saved } = open()
    let full = true
    const send = (a: Action): Promise<Acknowledged> =>
      full ? Promise.reject(new HostError('disk_full', 'the disk is full', 'Free some space.')) : Promise.resolve({ sequence: a.id === 'words' ? 7 : 8 })
    const words = box.post('prompt.submitted', { text: 'keep me' }, { id: 'words' })
    const moved = box.post('window.moved', move, { id: 'moved' })
    box.connect(send)
    await expect(moved).rejects.toMatchObject({ code: 'disk_full' })
    expect(refused).toEqual(['disk_full'])
    expect(shown().map((q) => [q.action.id, q.stuck])).toEqual([['words', 'the disk is full. Free some space.']])
    expect(readQueue(JSON.stringify([...saved.values()]))).toEqual(shown())
    full = false
    box.again('words')
    await expect(words).resolves.toEqual({ sequence: 7 })
    expect(shown()).toEqual([])
  })

  it('is bounded, and says so', async () => {
    const { box, refused } = open()
    for (let n = 0; n < 500; n++) void box.post('window.moved', move).catch(() => {})
    await expect(box.post('window.moved', move)).rejects.toMatchObject({ code: 'exhausted' })
    expect(refused).toEqual(['exhausted'])
  })

  it('finds what a page on another origin left with the console, once', () => {
    const item = (id: string): Queued => ({ action: { type: 'window.moved', id, data: move }, tries: 0, stuck: '' })
    localStorage.setItem('key', JSON.stringify([item('b'), item('c')])) // in the format in which pages once kept them
    localStorage.setItem('key.d', JSON.stringify(item('d')))
    const there: (string | null)[] = []
    const shelf = browserShelf('key', [JSON.stringify(item('a')), JSON.stringify([item('b')])], (id, v) => there.push(v === null ? `-${id}` : id))
    expect(shelf.load().map((q) => q.action.id)).toEqual(['a', 'b', 'c', 'd'])
    expect(Object.keys(localStorage).toSorted()).toEqual(['key.a', 'key.b', 'key.c', 'key.d'])
    for (const id of ['a', 'b', 'c', 'd']) shelf.drop(id, false)
    expect(there).toEqual(['a', 'b', 'c', 'd', '-a', '-b', '-c', '-d'])
    expect(localStorage.length).toBe(0)
  })

  it('of two tabs neither writes over what the other one kept, and each hears what the other one was done with', async () => {
    const shelf = () => browserShelf('tabs', undefined, () => {})
    const one = new Outbox(shelf(), () => {}, () => {})
    const two = new Outbox(shelf(), () => {}, () => {})
    void one.post('prompt.submitted', { text: 'first' }, { id: '1' }).catch(() => {})
    void two.post('prompt.submitted', { text: 'second' }, { id: '2' }).catch(() => {})
    expect(new Outbox(shelf(), () => {}, () => {}).ids).toEqual(['1', '2'])
    two.discard('2')
    expect(new Outbox(shelf(), () => {}, () => {}).ids).toEqual(['1'])

    const { box, gone } = open([{ action: { type: 'window.moved', id: 'theirs', data: move }, tries: 0, stuck: '' }])
    const own = box.post('window.moved', move, { id: 'own' })
    const lost = expect(box.post('window.moved', move, { id: 'lost' })).rejects.toMatchObject({ code: 'cancelled' })
    gone('theirs', false)
    gone('own', false) // sent by another tab, so that the answer is still waited for
    gone('lost', true)
    await lost
    expect(box.ids).toEqual(['own'])
    box.connect(() => Promise.resolve({ sequence: 7 }))
    await expect(own).resolves.toEqual({ sequence: 7 })
  })
})
