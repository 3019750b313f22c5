import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { complete, History, parse, type SlashCommand } from '../src/shell/prompt'

const commands: SlashCommand[] = [
  { name: 'open', args: 'app', hint: '', values: () => [{ value: 'events', hint: 'Events' }, { value: 'timetravel', hint: 'Time Travel' }] },
  { name: 'new', args: '', hint: '' },
  { name: 'theme', args: 'name', hint: '', values: () => [{ value: 'night', hint: 'dark' }, { value: 'day', hint: 'light' }] },
]

describe('the prompt bar', () => {
  it.each([
    ['  make it blue ', { kind: 'prompt', text: 'make it blue' }],
    ['!ls -la', { kind: 'exec', command: 'ls -la' }],
    ['! git log', { kind: 'exec', command: 'git log' }],
    ['/open events', { kind: 'slash', name: 'open', args: 'events' }],
    ['/help', { kind: 'slash', name: 'help', args: '' }],
    ['/usr/bin is what?', { kind: 'prompt', text: '/usr/bin is what?' }],
    ['\\!important', { kind: 'prompt', text: '!important' }],
    ['\\/open', { kind: 'prompt', text: '/open' }],
    ['what! now', { kind: 'prompt', text: 'what! now' }],
    ['a\nb', { kind: 'prompt', text: 'a\nb' }],
    ['   ', { kind: 'nothing' }],
    ['!', { kind: 'nothing' }],
    ['/', { kind: 'nothing' }],
  ])('reads %j', (line, want) => expect(parse(line)).toEqual(want))

  it('loses no text: whatever is typed becomes what is sent', () => {
    fc.assert(
      fc.property(fc.string(), (line) => {
        const p = parse(line)
        const text = line.trim()
        if (p.kind === 'prompt') expect(text.endsWith(p.text)).toBe(true)
        if (p.kind === 'exec') expect(text).toContain(p.command)
        if (p.kind === 'nothing') expect(['', '!', '/']).toContain(text)
      }),
    )
  })

  it('completes names, then values', () => {
    expect(complete('/', commands).map((c) => c.line)).toEqual(['/open ', '/new', '/theme '])
    expect(complete('/th', commands).map((c) => c.line)).toEqual(['/theme '])
    expect(complete('/open t', commands).map((c) => c.line)).toEqual(['/open timetravel', '/open events'])
    expect(complete('/theme d', commands)[0]?.line).toBe('/theme day')
    expect(complete('open', commands)).toEqual([])
    expect(complete('/nothing x', commands)).toEqual([])
  })

  it('walks the history and comes back to what was being typed', () => {
    const h = new History()
    h.add('one')
    h.add('two')
    h.add('two')
    expect([h.back('dra'), h.back(''), h.back('')]).toEqual(['two', 'one', null])
    expect([h.forth(), h.forth(), h.forth()]).toEqual(['two', 'dra', null])
  })
})
