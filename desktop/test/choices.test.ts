import { describe, expect, it } from 'vitest'
import type { Choices } from '../src/link/services'
import { carried, possible, readChosen, wordsOf } from '../src/shell/choices'
import { meaning, usualEffort } from '../src/shell/choiceWords'

const all: Choices = { routes: ['plan', 'direct'], directWords: 30, efforts: ['low', 'high'] }

describe('what a prompt can choose', () => {
  it('is what its computer and its models have', () => {
    expect(possible({ route: 'direct', effort: 'high', review: true }, all)).toEqual({ route: 'direct', effort: 'high', review: true })
    expect(possible({ route: 'direct', effort: 'none' }, all)).toEqual({ route: 'direct' })
    expect(possible({ route: 'plan', effort: 'high', review: true }, {})).toEqual({ review: true })
    expect(possible({ route: 'plan', effort: 'high', review: true })).toEqual({ review: true })
    expect(possible({ review: true }, { review: true })).toEqual({})
  })

  it('is one of the models that there are, and less money than the owner allows', () => {
    const c: Choices = { models: ['fast', 'mine/one'] }
    expect(possible({ model: 'fast', spend: 1 }, c, 5)).toEqual({ model: 'fast', spend: 1 })
    expect(possible({ model: 'mine/two', spend: 5 }, c, 5)).toEqual({})
    expect(possible({ spend: 7 }, c)).toEqual({ spend: 7 })
    for (const spend of [0, -1, Number.NaN, Infinity, 20_000]) expect(possible({ spend }, c)).toEqual({})
    expect(wordsOf({ model: 'fast', spend: 0.5 }, c, 5)).toEqual(['fast', 'at most $0.5'])
    expect(carried({ model: 'fast', spend: 0.5, review: true })).toEqual({ model: 'fast', review: true, budget: { wall_s: 0, tool_calls: 0, tokens: 0, cost_usd: 0.5 } })
    expect(carried({ route: 'plan' })).toEqual({ route: 'plan' })
  })

  it('is said in a few words, and what the owner wants with it', () => {
    expect(wordsOf({}, all)).toEqual([])
    expect(wordsOf({ route: 'plan', effort: 'low' }, all)).toEqual(['planned first', 'thinks little'])
    expect(wordsOf({ route: 'direct', review: true }, all)).toEqual(['one Associate', 'you look first'])
    expect(wordsOf({}, { review: true })).toEqual(['you look first'])
    expect(wordsOf({ route: 'direct' }, {})).toEqual([])
  })

  it('has a usual one, which is shown', () => {
    expect(meaning('', all)).toContain('up to 30 words')
    expect(meaning('', {})).toBe('The Director plans it.')
    expect(usualEffort({})).toBe('as the model does by itself')
    expect(usualEffort({ director: 'high', associate: 'high' })).toBe('high, as configured')
    expect(usualEffort({ associate: 'low' })).toBe('as configured: the Director as its model does, Associates low')
  })

  it('is no more than that, whatever an older page handed on', () => {
    for (const v of [null, 3, 'plan', { route: 'fast', effort: 7, more: 1 }, [1]]) expect(possible(readChosen(v), all)).toEqual({})
    expect(possible(readChosen({ route: 'plan', review: 'yes', more: 1 }), all)).toEqual({ route: 'plan', review: true })
  })
})
