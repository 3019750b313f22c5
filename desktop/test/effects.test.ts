import { describe, expect, it } from 'vitest'
import type { Event } from '../src/contract/types'
import { sentWords } from '../src/apps/run/sent'
import { effectsAfter, mostEffects, type EffectView } from '../src/apps/run/effects'
import { blank, reduce } from '../src/stores/runs'
import { describe as say } from '../src/text/describe'
import { event } from './fake'

let n = 0
const of = (type: string, data: unknown): Event => event(++n, type, data, { run: 'r', task: 't' })
const intended = (effect: string) => of('effect.intended', { effect, kind: 'mcp', target: 'shop order', what: '{"what":"a lamp"}', digest: 'd', args: 'a', call: 'c', attempt: 1, key: 'k' })
const ended = (effect: string, outcome: string) => of('effect.ended', { effect, outcome, detail: 'so' })
const resolved = (effect: string, found: string) => of('effect.resolved', { effect, found, note: 'seen' })
const after = (events: Event[]) => events.reduce(effectsAfter, [] as EffectView[])

describe('what a run changed outside', () => {
  it('is under way, and then what it came to', () => {
    expect(after([intended('e')])).toMatchObject([{ effect: 'e', task: 't', target: 'shop order', what: '{"what":"a lamp"}', key: 'k', outcome: 'open' }])
    expect(after([intended('e'), ended('e', 'done')])).toMatchObject([{ outcome: 'done', detail: 'so' }])
  })

  it('ends once, and is resolved once and only if it was unknown', () => {
    expect(after([intended('e'), ended('e', 'unknown'), ended('e', 'done')])).toMatchObject([{ outcome: 'unknown' }])
    expect(after([intended('e'), ended('e', 'done'), resolved('e', 'not_done')])).toMatchObject([{ outcome: 'done' }])
    const both = after([intended('e'), ended('e', 'unknown'), resolved('e', 'not_done'), resolved('e', 'done')])
    expect(both).toMatchObject([{ outcome: 'failed', found: 'not_done', note: 'seen' }])
  })

  it('is nothing without its intention, is counted once, and is bounded', () => {
    expect(after([ended('x', 'done'), resolved('x', 'done')])).toEqual([])
    expect(after([intended('e'), intended('e')])).toHaveLength(1)
    expect(after(Array.from({ length: mostEffects + 5 }, (_, i) => intended(`e${i}`)))).toHaveLength(mostEffects)
  })

  it('is said in a line without its key', () => {
    expect(sentWords({ what: '{"idempotency_key":"k","what":"a lamp","n":2}', key: 'k' })).toBe('what: a lamp, n: 2')
    expect(sentWords({ what: '{"what":"a la', key: '' })).toBe('{"what":"a la')
    expect(sentWords({ what: '[1]', key: '' })).toBe('[1]')
  })

  it('is part of the run, and is told when nobody knows', () => {
    const events = [intended('e'), ended('e', 'unknown')]
    expect(after([...events, ...events].reduce(reduce, blank('r', '')).outside)).toMatchObject([{ effect: 'e', outcome: 'unknown' }])
    expect(say(events[1]!)).toMatchObject({ title: 'It may have happened outside', quiet: false })
    expect(say(ended('e', 'done'))).toMatchObject({ quiet: true })
  })
})
