const test = require('node:test')
const assert = require('node:assert')
const { parseQuery } = require('../.out/query.js')

test('repeated', () => {
  assert.deepEqual({ ...parseQuery('?a=1&a=2&b=x') }, { a: ['1', '2'], b: ['x'] })
})
