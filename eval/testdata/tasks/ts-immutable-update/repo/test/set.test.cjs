const test = require('node:test')
const assert = require('node:assert')
const { setIn } = require('../.out/set.js')

test('sets a field', () => assert.deepEqual(setIn({ a: 1, b: 2 }, ['a'], 3), { a: 3, b: 2 }))
test('sets an inner field', () => assert.deepEqual(setIn({ a: { b: 1 } }, ['a', 'b'], 2), { a: { b: 2 } }))
