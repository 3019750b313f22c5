const test = require('node:test')
const assert = require('node:assert')
const { clock } = require('../.out/clock.js')

test('minutes', () => assert.equal(clock(61), '1:01'))
test('hours', () => assert.equal(clock(3600), '1:00:00'))
