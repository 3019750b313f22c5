const test = require('node:test')
const assert = require('node:assert')
const { parseQuery, stringify } = require('../.out/query.js')

test('parses', () => {
  assert.deepEqual({ ...parseQuery('?q=a%20b+c&x==y=&q=2&flag&&bad=%zz') }, { q: ['a b c', '2'], x: ['=y='], flag: [''], bad: ['%zz'] })
  assert.deepEqual({ ...parseQuery('') }, {})
  assert.deepEqual(parseQuery('__proto__=1')['__proto__'], ['1'])
})

test('is undone', () => {
  const q = { 'a&b': ['1=2', 'ü, ?'], c: [''] }
  assert.deepEqual({ ...parseQuery(stringify(q)) }, q)
})
