const test = require('node:test')
const assert = require('node:assert')
const { Editor } = require('../.out/editor.js')
const { History } = require('../.out/history.js')

test('goes back and forth', () => {
  const e = new Editor()
  assert.equal(e.undo(), false)
  e.insert(0, 'ac')
  e.insert(1, 'b')
  e.insert(1, '')
  assert.equal(e.undo(), true)
  assert.equal(e.text, 'ac')
  assert.equal(e.redo(), true)
  assert.equal(e.text, 'abc')
  assert.equal(e.redo(), false)
})

test('a new state ends what was undone', () => {
  const h = new History(0)
  h.push(1)
  h.undo()
  h.push(2)
  assert.equal(h.redo(), false)
  assert.equal(h.now, 2)
  h.undo()
  assert.equal(h.now, 0)
})

test('is bounded', () => {
  const h = new History(0, 3)
  for (let i = 1; i <= 9; i++) h.push(i)
  let back = 0
  while (h.undo()) back++
  assert.equal(back, 2)
  assert.equal(h.now, 7)
})
