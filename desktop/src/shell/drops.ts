import { useEffect, useState } from 'react'
import { missingSheets } from '../apps/registry'
import { HostError } from '../link/protocol'
import { tell } from './intents'
import { isText } from './keys'
import type * as Things from './things/bring'

/** What was dropped or pasted. It can only be read while its event lasts. */
export interface Brought {
  things: [FileSystemEntry | null, File | null][]
  addresses: string
  text: string
  pasted: boolean
}

let bring: typeof Things | undefined

/** The part that brings things in, which is not in the first visit. */
export async function bringing(): Promise<typeof Things> {
  try {
    await missingSheets()
    return (bring = await import('./things/bring'))
  } catch {
    throw new HostError('unavailable', 'Nothing was brought in.', 'Try it again with a connection.')
  }
}

/**
 * Takes what is dropped or pasted anywhere but text in a text field, which is the browser's; without this the browser would leave the
 * page to show a file. Says whether something was dragged or pasted yet.
 */
export function useDrops(): boolean {
  const [used, setUsed] = useState(false)
  useEffect(() => {
    const on = (e: DragEvent | ClipboardEvent) => {
      const pasted = e.type === 'paste'
      const data = 'clipboardData' in e ? e.clipboardData : e.dataTransfer
      if (!data || e.defaultPrevented) return
      const has = (type: string) => data.types.includes(type)
      // What is copied in an office program is also there as a picture.
      const files = has('Files') && !(pasted && has('text/plain') && has('text/html'))
      if (!files && (isText(e.target) ? pasted || !has('text/uri-list') : pasted && !has('text/plain'))) return
      e.preventDefault()
      setUsed(true)
      if (e.type === 'dragover') {
        data.dropEffect = bring?.over(e.target, files) ?? 'copy'
        if (!bring) bringing().catch(() => {})
        return
      }
      const brought: Brought = {
        things: files ? Array.from(data.items, (i) => [i.webkitGetAsEntry(), i.getAsFile()]) : [],
        addresses: data.getData('text/uri-list'),
        text: data.getData('text/plain'),
        pasted,
      }
      bringing().then((b) => b.take(brought, e.target), tell)
    }
    const events = ['dragover', 'drop', 'paste'] as const
    for (const type of events) window.addEventListener(type, on)
    return () => {
      for (const type of events) window.removeEventListener(type, on)
    }
  }, [])
  return used
}
