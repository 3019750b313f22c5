const test = require('node:test')
const assert = require('node:assert')
const { clock } = require('../.out/clock.js')

test('clock', () => {
  for (const [given, want] of [[0, '0:00'], [59.9, '0:59'], [600, '10:00'], [3599, '59:59'], [36061, '10:01:01']]) assert.equal(clock(given), want)
})
