const test = require('node:test')
const assert = require('node:assert')
const { Editor } = require('../.out/editor.js')

test('inserts', () => {
  const e = new Editor()
  e.insert(0, 'ac')
  e.insert(1, 'b')
  assert.equal(e.text, 'abc')
})
