import { isText } from '../keys'
import { whyReadOnly } from '../intents'
import { named } from './words'

export type Field = HTMLInputElement | HTMLTextAreaElement

/** Where something goes: into a folder, into inbox with its path in a text field or, without one, the prompt bar; or not, and why. */
export type Place = { mark: Element | null } & ({ folder: string } | { field: Field | null } | { why: string })

const beside = 'Drop it on the desktop or the prompt bar.'

// What these show happened already, or is what it is.
const shutWindows: Record<string, string> = {
  events: `Events shows what has happened. ${beside}`,
  timetravel: `Time Travel shows what was; nothing can be put into the past. ${beside}`,
  trace: `A trace shows what a run did. ${beside}`,
  kept: `This shows what was written before. ${beside}`,
}

/** Where what is dropped or pasted at an element goes. */
export function placeOf(target: EventTarget | null, files: boolean): Place {
  const at = target instanceof Element ? target : document.body
  const readOnly = whyReadOnly()
  if (readOnly) return { mark: null, why: `${readOnly} Open the computer with one that may write.` }
  const around = at.closest('[data-testid=window]')
  const shut = shutWindows[around?.getAttribute('data-app') ?? '']
  if (shut) return { mark: around, why: shut }
  const field = at.closest<Field>('[data-things]')
  if (field && !field.disabled) return { mark: field, field }
  if (files && isText(at)) return { mark: at, why: 'This field takes no files. Drop them on the desktop; their paths are in the prompt bar then.' }
  const folder = files && (at.closest('[data-folder]') ?? around?.querySelector('[data-folder]'))
  if (folder) return { mark: folder, folder: folder.getAttribute('data-folder')! }
  const own = around?.querySelector<Field>('[data-things=window]:enabled')
  return own ? { mark: own, field: own } : { mark: document.querySelector('[data-testid=prompt]'), field: null }
}

/** What is said while something is dragged over a place. */
export function saysOf(place: Place, files: boolean): string {
  if ('why' in place) return place.why
  if ('folder' in place) return `Into ${place.folder ? named(place.folder) : 'the computer’s own folder'}`
  const where = place.field && !place.field.matches('[data-testid=prompt]') ? 'this window’s text' : 'the prompt bar'
  return files ? `Into inbox, and its path into ${where}` : `Into ${where}`
}
