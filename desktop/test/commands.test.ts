import { describe, expect, it } from 'vitest'
import { append, mostCharacters, mostLines, type Stretch } from '../src/stores/commands'
import type { OutputChunk } from '../src/link/protocol'

const chunk = (n: number, text: string, stream: OutputChunk['stream'] = 'stdout'): OutputChunk => ({ n, stream, text })
const textOf = (output: Stretch[]) => output.map((s) => s.text).join('')

describe('a window of output', () => {
  it('joins what follows and keeps the streams apart, in order', () => {
    const { output, cut } = append([], [chunk(0, 'a'), chunk(1, 'b'), chunk(2, 'no', 'stderr'), chunk(3, 'c')])
    expect(output).toEqual([
      { n: 0, stream: 'stdout', text: 'ab' },
      { n: 2, stream: 'stderr', text: 'no' },
      { n: 3, stream: 'stdout', text: 'c' },
    ])
    expect(cut).toBe(false)
  })

  it('stays bounded in lines and characters, whatever comes, and keeps the end', () => {
    let output: Stretch[] = []
    let whole = ''
    let cut = false
    for (let n = 0; n < 60; n++) {
      const text = n % 3 === 0 ? 'y\n'.repeat(700) : n % 3 === 1 ? 'x'.repeat(9000) : `${n}\n`
      whole += text
      ;({ output, cut } = append(output, [chunk(n, text, n % 5 === 0 ? 'stderr' : 'stdout')]))
      const shown = textOf(output)
      expect(shown.length).toBeLessThanOrEqual(mostCharacters)
      expect(shown.split('\n').length).toBeLessThanOrEqual(mostLines + 1)
      expect(whole.endsWith(shown)).toBe(true)
    }
    expect(cut).toBe(true)
    expect(textOf(output).length).toBeGreaterThan(1000)
  })

  it('one line that never ends is cut too', () => {
    const { output, cut } = append([], [chunk(0, 'x'.repeat(3 * mostCharacters))])
    expect(textOf(output).length).toBe(mostCharacters)
    expect(cut).toBe(true)
  })
})
