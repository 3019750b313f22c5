import { describe, expect, it } from 'vitest'
import { following, sayer } from '../src/apps/kept/follows'
import type { Fact } from '../src/link/services'

const fact = (id: string, from?: string[], more: Partial<Fact> = {}): Fact => ({ id, text: id, actor: 'person:u', time: '', kept: true, sequence: 1, ...(from ? { from } : {}), ...more })

describe('what is kept', () => {
  it('goes with all that follows from it, in whatever order it is listed', () => {
    const facts = [fact('d', ['c']), fact('c', ['a', 'x']), fact('b'), fact('a'), fact('e', ['e'])]
    expect(following(facts, 'a').map((f) => f.id)).toEqual(['d', 'c'])
    expect(following(facts, 'b')).toEqual([])
    expect(following(facts, 'e')).toEqual([])
  })

  it('says who had it kept', () => {
    expect(sayer(fact('a'))).toBe('You')
    expect(sayer(fact('a', [], { actor: 'program:p' }))).toBe('A program of yours')
    expect(sayer(fact('a', [], { run: 'r', actor: 'director:r' }))).toBe('You, in the prompt of a run')
  })
})
