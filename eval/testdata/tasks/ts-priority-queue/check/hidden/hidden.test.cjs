const test = require('node:test')
const assert = require('node:assert')
const { order } = require('../.out/schedule.js')

test('in order', () => {
  const jobs = []
  for (let i = 0; i < 200; i++) jobs.push({ name: 'j' + i, priority: (i * 7919) % 13 })
  const want = jobs.map((j, at) => ({ ...j, at })).sort((a, b) => a.priority - b.priority || a.at - b.at).map((j) => j.name)
  assert.deepEqual(order(jobs), want)
  assert.deepEqual(order([]), [])
})
