import type { ActionType, Event, Frame, Payloads, WindowState } from '../contract/types'
import { dataOf } from '../contract/types'
import { newID } from '../contract/id'
import type { WindowRecord } from '../link/protocol'
import { keptStore } from './kept'

type WindowAction = Extract<ActionType, `window.${string}`>
type Post = (type: WindowAction, data: Payloads[WindowAction], id: string) => void

interface WindowsState {
  windows: Record<string, WindowRecord>
  /** Per window, the ids of our own events that the log has not returned yet. */
  pending: Record<string, string[]>
  post: Post
  /** Replaces all windows by a snapshot's, except those that we are changing. */
  reset(windows: WindowRecord[]): void
  take(e: Event): void
  /** The log refused one of our events. */
  forget(id: string): void
  open(w: Omit<WindowRecord, 'z' | 'window'>): string
  place(id: string, frame: Frame, state?: WindowState): void
  raise(id: string): void
  close(id: string): void
}

export const useWindows = keptStore<WindowsState>('windows', (set, get) => {
  const commit = (type: WindowAction, id: string, data: Payloads[WindowAction]) => {
    const event = newID()
    set((s) => ({ pending: { ...s.pending, [id]: [...(s.pending[id] ?? []), event] } }))
    get().post(type, data, event)
  }
  const put = (w: WindowRecord) => set((s) => ({ windows: { ...s.windows, [w.window]: w } }))
  const drop = (id: string) => set((s) => ({ windows: without(s.windows, id) }))
  const top = () => Math.max(0, ...Object.values(get().windows).map((w) => w.z))

  return {
    windows: {},
    pending: {},
    post: () => {},
    reset(list) {
      set((s) => {
        const windows = Object.fromEntries(list.filter((w) => !s.pending[w.window]).map((w) => [w.window, w]))
        for (const id of Object.keys(s.pending)) {
          const mine = s.windows[id]
          if (mine) windows[id] = mine
        }
        return { windows }
      })
    },
    take(e) {
      const id = (e.data as { window?: string } | undefined)?.window
      if (!id) return
      const mine = get().pending[id]
      if (mine) {
        // Our own changes are already on the screen and come after this event in the log,
        // so they win.
        if (mine.includes(e.id)) get().forget(e.id)
        return
      }
      const opened = dataOf(e, 'window.opened')
      if (opened) return put({ ...opened, z: top() + 1 })
      const w = get().windows[id]
      if (!w) return
      const moved = dataOf(e, 'window.moved')
      if (moved) return put({ ...w, frame: moved.frame, state: moved.state, z: moved.z })
      const focused = dataOf(e, 'window.focused')
      if (focused) return put({ ...w, z: focused.z })
      if (dataOf(e, 'window.closed')) drop(id)
    },
    forget(event) {
      set((s) => {
        const pending: Record<string, string[]> = {}
        for (const [id, events] of Object.entries(s.pending)) {
          const left = events.filter((x) => x !== event)
          if (left.length > 0) pending[id] = left
        }
        return { pending }
      })
    },
    open(w) {
      const record: WindowRecord = { ...w, window: newID(), z: top() + 1 }
      put(record)
      const { z: _, ...data } = record
      commit('window.opened', record.window, data)
      return record.window
    },
    place(id, frame, state) {
      const w = get().windows[id]
      if (!w) return
      const next = { ...w, frame, state: state ?? w.state }
      put(next)
      commit('window.moved', id, { window: id, frame, state: next.state, z: next.z })
    },
    raise(id) {
      const w = get().windows[id]
      if (!w) return
      const z = top()
      if (w.state === 'minimised') {
        const next = { ...w, state: 'normal' as const, z: z + 1 }
        put(next)
        commit('window.moved', id, { window: id, frame: w.frame, state: 'normal', z: z + 1 })
      } else if (w.z < z || Object.values(get().windows).some((o) => o.window !== id && o.z === z)) {
        put({ ...w, z: z + 1 })
        commit('window.focused', id, { window: id, z: z + 1 })
      }
    },
    close(id) {
      if (!get().windows[id]) return
      drop(id)
      commit('window.closed', id, { window: id })
    },
  }
})

/** Windows from back to front; equal z in order of opening. */
export function stacked(windows: Record<string, WindowRecord>): WindowRecord[] {
  return Object.values(windows).sort((a, b) => a.z - b.z || (a.window < b.window ? -1 : 1))
}

/** The front window that is not minimised. */
export function front(windows: Record<string, WindowRecord>): WindowRecord | undefined {
  return stacked(windows).findLast((w) => w.state !== 'minimised')
}

/** Each window's label: its title, numbered where several have the same one. */
export function labelled(windows: Record<string, WindowRecord>): Record<string, string> {
  const seen: Record<string, number> = {}
  const labels: Record<string, string> = {}
  for (const w of Object.values(windows).sort((a, b) => (a.window < b.window ? -1 : 1))) {
    const n = (seen[w.title] = (seen[w.title] ?? 0) + 1)
    labels[w.window] = n === 1 ? w.title : `${w.title} (${n})`
  }
  return labels
}

/** A window's label, for the names of its regions: two windows of an app have the same regions. */
export const useLabel = (id: string): string => useWindows((s) => labelled(s.windows)[id] ?? '')

function without<T>(map: Record<string, T>, key: string): Record<string, T> {
  const { [key]: _, ...rest } = map
  return rest
}
