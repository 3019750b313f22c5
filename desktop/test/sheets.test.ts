import { expect, it } from 'vitest'
import { missingSheets } from '../src/apps/registry'

/** A style sheet whose address is no attribute, so that nothing here loads it. */
function sheet(): HTMLLinkElement {
  const link = document.createElement('link')
  link.rel = 'stylesheet'
  Object.defineProperty(link, 'href', { value: 'http://localhost/assets/part.css' })
  link.cloneNode = sheet
  return link
}

it('style sheets that could not be loaded are waited for by all who want them', async () => {
  const link = sheet()
  document.head.append(link)
  link.dispatchEvent(new Event('error'))
  const both = Promise.all([missingSheets(), missingSheets()])
  await Promise.resolve()
  const again = document.querySelector('link')!
  expect(again).not.toBe(link)
  again.dispatchEvent(new Event('load'))
  await both
  await missingSheets() // nothing is missing any more
  expect(document.querySelector('link')).toBe(again)
})
