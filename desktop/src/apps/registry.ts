import { lazy, type ComponentType } from 'react'
import { CircleAlert } from 'lucide-react'
import { keptStore, keptThing } from '../stores/kept'
import type { AppProps, Manifest } from './types'

export interface App extends Manifest {
  id: string
  /** Why its manifest could not be used; its window then shows this. */
  fault?: string
  /** Its entry, loaded when first shown; the same one as long as the manifest is the same. */
  component: ComponentType<AppProps>
}

interface AppsState {
  apps: Record<string, App>
}

export const useApps = keptStore<AppsState>('apps', () => ({ apps: {} }))

// Style sheets whose link failed to load. An error event of a link doesn't bubble, so it is
// caught while it is on its way down.
const failedSheets = keptThing('failedSheets', () => {
  const failed = new Set<string>()
  addEventListener('error', (e) => e.target instanceof HTMLLinkElement && failed.add(e.target.href), { capture: true })
  return failed
})

const components = keptThing('components', () => new Map<string, ComponentType<AppProps>>())

/**
 * The component behind an entry. The dev server hands out a manifest again with
 * every change near it, and another component would throw a window's state
 * away; so one is kept per app as long as its entry names the same module.
 */
function componentOf(id: string, entry: Manifest['entry']): ComponentType<AppProps> {
  const key = `${id} ${entry.toString().replace(/[?&]t=\d+/g, '')}`
  const known = components.get(key)
  if (known) return known
  const made = lazy(async () => {
    try {
      await missingSheets()
      return await entry()
    } catch (e) {
      // What could not be loaded can be tried again when its source is repaired, or the
      // connection is back.
      components.delete(key)
      throw e
    }
  })
  components.set(key, made)
  return made
}

/**
 * Requests the style sheets again that could not be loaded. The loader in Vite's builds
 * counts a sheet as loaded once it has requested it: a second try would show the app
 * without its styles.
 */
export function missingSheets(): Promise<void> {
  return (reloading ??= reloadSheets().finally(() => {
    reloading = null
  }))
}

// One at a time: a second one would take the sheets out that the first one waits for, which would then wait for ever.
let reloading: Promise<void> | null = null

async function reloadSheets(): Promise<void> {
  const failed = [...document.querySelectorAll<HTMLLinkElement>('link[rel=stylesheet]')].filter((l) => failedSheets.has(l.href))
  await Promise.all(
    failed.map(
      (l) =>
        new Promise<void>((loaded, rejected) => {
          const again = l.cloneNode() as HTMLLinkElement
          again.onload = () => {
            failedSheets.delete(l.href)
            loaded()
          }
          again.onerror = () => rejected(new Error(`${new URL(l.href).pathname} could not be loaded`))
          l.replaceWith(again)
        }),
    ),
  )
}

/** Starts loading the code of an app that is about to be opened. A failure is shown by the window that it opens in. */
export function preload(app: App): void {
  app.entry().catch(() => {})
}

/** Lets an app whose component could not be loaded try again. */
export function renew(id: string): void {
  const app = useApps.getState().apps[id]
  if (app) useApps.setState((s) => ({ apps: { ...s.apps, [id]: { ...app, component: componentOf(id, app.entry) } } }))
}

type Loaders = Record<string, () => Promise<unknown>>

/** Reads one folder's manifest; what is wrong with it becomes the app's fault, not the desktop's. */
export async function readApp(path: string, load: () => Promise<unknown>): Promise<App> {
  const id = /([^/]+)\/manifest\.tsx?$/.exec(path)?.[1] ?? path
  const broken = (fault: string): App => {
    const entry = () => Promise.reject(new Error(fault))
    return { id, name: id, icon: CircleAlert, fault, window: { w: 520, h: 320 }, single: true, entry, component: componentOf(`${id} (${fault})`, entry) }
  }
  try {
    const m = ((await load()) as { default?: Partial<Manifest> }).default
    if (!m || typeof m !== 'object') return broken('manifest.ts has no default export')
    if (typeof m.name !== 'string' || m.name === '') return broken('manifest.name: must be a non-empty string')
    if (typeof m.entry !== 'function') return broken('manifest.entry: must be a function that imports the component')
    if (!m.icon) return broken('manifest.icon: must be a component')
    if (!(Number(m.window?.w) > 0 && Number(m.window?.h) > 0)) return broken('manifest.window: must give w and h in pixels')
    return { ...(m as Manifest), id, component: componentOf(id, m.entry) }
  } catch (e) {
    return broken(e instanceof Error ? e.message : String(e))
  }
}

/** Reads all folders and puts what was found in place of what was there. */
export async function loadApps(loaders: Loaders): Promise<void> {
  const apps = await Promise.all(Object.entries(loaders).map(([path, load]) => readApp(path, load)))
  useApps.setState({ apps: Object.fromEntries(apps.map((a) => [a.id, a])) })
}

/** The order of apps everywhere: as their manifests say, then by name. */
export function byOrder(a: Pick<App, 'id' | 'name' | 'order'>, b: Pick<App, 'id' | 'name' | 'order'>): number {
  return (a.order ?? 50) - (b.order ?? 50) || a.name.localeCompare(b.name) || a.id.localeCompare(b.id)
}

/** The apps that have an icon, in their order. */
export function visible(apps: Record<string, App>): App[] {
  return Object.values(apps)
    .filter((a) => !a.hidden)
    .sort(byOrder)
}
