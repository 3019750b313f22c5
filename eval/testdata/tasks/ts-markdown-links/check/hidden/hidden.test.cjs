const test = require('node:test')
const assert = require('node:assert')
const { links } = require('../.out/links.js')

test('links', () => {
  const md = 'a [one](u1) and [two](u2 "t") ![img](i.png)\n`[no](x)`\n```js\n[no](y)\n```\n[wiki](https://e.test/a_(b))'
  assert.deepEqual(links(md), [{ text: 'one', url: 'u1' }, { text: 'two', url: 'u2' }, { text: 'wiki', url: 'https://e.test/a_(b)' }])
})
