const test = require('node:test')
const assert = require('node:assert')

test('the module loads', () => assert.ok(require('../.out/request.js')))
