const test = require('node:test')
const assert = require('node:assert')
const { Emitter } = require('../.out/emitter.js')

test('a listener that goes leaves the others', () => {
  const e = new Emitter()
  const got = []
  const off = e.on(() => { got.push('a'); off() })
  e.on(() => got.push('b'))
  e.emit(1)
  e.emit(2)
  assert.deepEqual(got, ['a', 'b', 'b'])
})

test('once is once, also when it emits', () => {
  const e = new Emitter()
  let n = 0
  e.once(() => { n++; if (n < 5) e.emit(0) })
  e.emit(0)
  assert.equal(n, 1)
})

test('off twice removes nobody else', () => {
  const e = new Emitter()
  let n = 0
  const off = e.on(() => n++)
  e.on(() => n++)
  off()
  off()
  e.emit(0)
  assert.equal(n, 1)
})
