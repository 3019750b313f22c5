import type { ComponentType } from 'react'

/** What an app's component gets. */
export interface AppProps {
  window: string
  props: Record<string, string>
  /** Whether the window is in front. */
  active: boolean
}

/**
 * An app is a folder src/apps/{id}/ whose manifest.ts has this as its default
 * export. `id` is the folder's name. Adding a folder adds the icon.
 */
export interface Manifest {
  name: string
  icon: ComponentType<{ size?: number; strokeWidth?: number; 'aria-hidden'?: boolean }>
  /** Loads the component when the first window opens. */
  entry: () => Promise<{ default: ComponentType<AppProps> }>
  window: { w: number; h: number; minW?: number; minH?: number }
  /** One window at most: opening again raises it. */
  single?: boolean
  /** Not on the desktop and not in /open: opened by what it shows. */
  hidden?: boolean
  /** Kinds of things it opens, such as "run" or "command"; its props then carry the thing's id under that name. */
  opens?: string[]
  /** Sorts icons; default 50. */
  order?: number
}

export function manifest(m: Manifest): Manifest {
  return m
}
