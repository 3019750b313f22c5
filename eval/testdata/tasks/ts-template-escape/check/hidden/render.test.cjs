const test = require('node:test')
const assert = require('node:assert')
const { render } = require('../.out/render.js')

test('escapes everything once', () => {
  assert.equal(render('{{a}}', { a: `<<"&'>>` }), '&lt;&lt;&quot;&amp;&#39;&gt;&gt;')
  assert.equal(render('{{{a}}}', { a: '{{b}}', b: 'x' }), '{{b}}')
  assert.equal(render('{{a}}', { a: '{{{b}}}$&', b: '<script>' }), '{{{b}}}$&amp;')
})

test('sections', () => {
  assert.equal(render('{{#a}}\n{{x}}{{/a}}-{{#b}}{{y}}{{/b}}', { a: [{ x: '1' }], b: [{ y: '2' }, { y: '3' }] }), '\n1-23')
  assert.equal(render('{{#a}}{{t}}{{x}}{{/a}}', { t: 'T', a: [{ x: '1' }] }), 'T1')
  assert.equal(render('{{none}}{{#none}}x{{/none}}{{toString}}', {}), '')
})
