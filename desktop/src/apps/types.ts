import type { ComponentType } from 'react'

/** What an app's component gets. */
export interface AppProps {
  window: string
  props: Record<string, string>
  /** Whether the window is in front. */
  active: boolean
}

/** An app is a folder src/apps/{id}/ whose manifest.ts has this as its default export. The folder's name is the app's id. Adding a folder adds the icon. */
export interface Manifest {
  name: string
  icon: ComponentType<{ size?: number; strokeWidth?: number; 'aria-hidden'?: boolean }>
  /** Loads the component when the first window opens. */
  entry: () => Promise<{ default: ComponentType<AppProps> }>
  window: { w: number; h: number; minW?: number; minH?: number }
  /** At most one window: opening the app again raises it. */
  single?: boolean
  /** Not on the desktop and not in /open: its windows are opened by the things that it shows, such as a command. */
  hidden?: boolean
  /** Kinds of things it opens, such as "run" or "command"; its props then carry the thing's id under that name. */
  opens?: string[]
  /** Sorts icons; default 50. */
  order?: number
}

export function manifest(m: Manifest): Manifest {
  return m
}
