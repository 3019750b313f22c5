const test = require('node:test')
const assert = require('node:assert')
const { debounce } = require('../.out/debounce.js')

function clock() {
  let n = 0
  const waiting = new Map()
  return { set: (f) => (waiting.set(n, f), n++), clear: (id) => waiting.delete(id), run: () => { const all = [...waiting.values()]; waiting.clear(); all.forEach((f) => f()) }, size: () => waiting.size }
}

test('the last arguments, once', () => {
  const c = clock(), got = []
  const d = debounce((x) => got.push(x), 5, c)
  d(1); d(2); d(3)
  assert.equal(c.size(), 1)
  c.run()
  d(4)
  c.run()
  assert.deepEqual(got, [3, 4])
})

test('cancel and flush', () => {
  const c = clock(), got = []
  const d = debounce((x) => got.push(x), 5, c)
  d(1); d.cancel(); c.run(); d.flush()
  d(2); d.flush(); d.flush(); c.run()
  assert.deepEqual(got, [2])
  assert.equal(c.size(), 0)
})
