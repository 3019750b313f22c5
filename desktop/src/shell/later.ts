import { createElement, useEffect, useSyncExternalStore, type ComponentType } from 'react'
import { missingSheets } from '../apps/registry'
import { useConnection } from '../stores/connection'

/** How long it is until what could not be loaded is tried again, in milliseconds. */
const pause = 4000

/** A component that shows nothing until its code is here. */
type Later<P> = ComponentType<P> & { ready: () => boolean }

/**
 * A part of the shell whose code is not in the first visit: it is fetched when the part is shown first. Nothing around it fails when it can't be
 * had, while there is no connection: it is tried again as long as the part is shown.
 */
export function later<P extends object>(load: () => Promise<{ default: ComponentType<P> }>): Later<P> {
  let got: ComponentType<P> | null = null
  let loading = false
  const told = new Set<() => void>()
  const subscribe = (tell: () => void) => {
    told.add(tell)
    return () => void told.delete(tell)
  }
  const fetch = async () => {
    if (got || loading) return
    loading = true
    try {
      await missingSheets()
      got = (await load()).default
      for (const tell of told) tell()
    } catch {
      // It is tried again.
    } finally {
      loading = false
    }
  }
  function Part(props: P) {
    const part = useSyncExternalStore(subscribe, () => got)
    const online = useConnection((s) => s.state === 'online')
    useEffect(() => {
      if (part) return
      void fetch()
      const timer = setInterval(() => void fetch(), pause)
      return () => clearInterval(timer)
    }, [part, online])
    return part && createElement(part, props)
  }
  return Object.assign(Part, { ready: () => got !== null })
}
