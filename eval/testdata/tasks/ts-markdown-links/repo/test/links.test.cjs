const test = require('node:test')
const assert = require('node:assert')
const { links } = require('../.out/links.js')

test('finds a link', () => assert.deepEqual(links('see [this](https://example.com/a).'), [{ text: 'this', url: 'https://example.com/a' }]))
test('finds none', () => assert.deepEqual(links('nothing [here] (at all)'), []))
