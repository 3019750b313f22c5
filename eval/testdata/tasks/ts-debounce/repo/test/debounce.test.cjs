const test = require('node:test')
const assert = require('node:assert')
const { debounce } = require('../.out/debounce.js')

test('calls once the time is over', () => {
  const waiting = []
  const said = []
  const call = debounce((x) => said.push(x), 10, { set: (action) => waiting.push(action), clear: () => {} })
  call('a')
  assert.deepEqual(said, [])
  waiting[0]()
  assert.deepEqual(said, ['a'])
})
