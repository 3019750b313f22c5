import type { Event } from '../contract/types'
import { keptStore } from './kept'

/** How many events the page keeps; older ones are requested from the host. */
export const kept = 2000

interface EventsState {
  /** Ascending by sequence, without gaps. */
  events: Event[]
  add(e: Event): void
  /** Puts a page of older events before the oldest kept one. */
  prepend(older: Event[]): void
  clear(): void
}

export const useEvents = keptStore<EventsState>('events', (set) => ({
  events: [],
  add: (e) => set((s) => ({ events: s.events.length >= kept ? [...s.events.slice(-kept + 1), e] : [...s.events, e] })),
  prepend: (older) =>
    set((s) => {
      const first = s.events[0]?.sequence ?? Infinity
      return { events: [...older.filter((e) => e.sequence < first), ...s.events] }
    }),
  clear: () => set({ events: [] }),
}))
