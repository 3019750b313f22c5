import { renderToStaticMarkup } from 'react-dom/server'
import { describe, expect, it } from 'vitest'
import { Markdown } from '../src/parts/Markdown'

// This is what document.RenderRun writes: a mark under each heading, plans as lists, and the output
// of failed commands in fences inside lists.
const body = `# Make it blue

## Objective
[//]: # (choir objective a141fd970525c852)

A blue desktop.

> make it blue

## Plan
[//]: # (choir plan 00165b86b6009e91)

- [x] look
- [ ] edit *(under way)*

## Evidence
[//]: # (choir evidence cd0a81ffce5e9ecb)

- **failed**: edit the theme (attempt 2)
  - Ran \`npm test\`: exit 1 in 1.5s
    \`\`\`\`
    boom
    ## Plan
    \`\`\`\`

## Result
[//]: # (choir result ffef48ab95f7019b)

**done**, verification: pass
`

describe("a run's document", () => {
  const html = renderToStaticMarkup(<Markdown text={body} />)
  it('shows no marks', () => expect(html).not.toContain('choir '))
  it('shows the sections, and nothing that was printed as one', () => expect([...html.matchAll(/<h2>([^<]*)<\/h2>/g)].map((m) => m[1])).toEqual(['Objective', 'Plan', 'Evidence', 'Result']))
  it('shows the plan as boxes and output as it was printed', () => {
    expect(html.match(/type="checkbox"/g)).toHaveLength(2)
    expect(html).toContain('boom\n## Plan')
    expect(html).toContain('<code>npm test</code>')
  })
})
