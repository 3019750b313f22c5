const test = require('node:test')
const assert = require('node:assert')
const { order } = require('../.out/schedule.js')

test('has every job', () => assert.deepEqual(order([{ name: 'a', priority: 1 }]), ['a']))
test('has no job', () => assert.deepEqual(order([]), []))
