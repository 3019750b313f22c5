const test = require('node:test')
const assert = require('node:assert')
const { render } = require('../.out/render.js')

test('fills', () => {
  assert.equal(render('<b>{{name}}</b>', { name: 'a<b' }), '<b>a&lt;b</b>')
  assert.equal(render('{{#rows}}<i>{{x}}</i>{{/rows}}', { rows: [{ x: '1' }, { x: '2' }] }), '<i>1</i><i>2</i>')
})
