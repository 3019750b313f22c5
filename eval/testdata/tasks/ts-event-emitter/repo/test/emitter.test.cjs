const test = require('node:test')
const assert = require('node:assert')
const { Emitter } = require('../.out/emitter.js')

test('all listeners are called', () => {
  const e = new Emitter()
  const got = []
  e.once((v) => got.push('once ' + v))
  e.on((v) => got.push('on ' + v))
  assert.equal(e.emit(1), 2)
  assert.deepEqual(got, ['once 1', 'on 1'])
})
