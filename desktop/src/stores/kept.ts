import { create, type StateCreator, type StoreApi, type UseBoundStore } from 'zustand'

interface Keep {
  stores: Record<string, { getState(): unknown }>
  things: Record<string, unknown>
}

const keep: Keep = ((globalThis as { __choir?: Keep }).__choir ??= { stores: {}, things: {} })

/**
 * A store whose data survive the replacement of its own module: the functions come from the
 * new code, and the fields that both have keep the old instance's values.
 */
export function keptStore<T extends object>(name: string, creator: StateCreator<T>): UseBoundStore<StoreApi<T>> {
  const store = create<T>(creator)
  const old = keep.stores[name]?.getState() as Partial<T> | undefined
  if (old) {
    const data: Partial<T> = {}
    for (const key of Object.keys(store.getState()) as (keyof T)[]) {
      if (key in old && typeof old[key] !== 'function') data[key] = old[key]
    }
    store.setState(data)
  }
  keep.stores[name] = store
  return store
}

/** One instance of something for the life of the page, however often its module is replaced. */
export function keptThing<T>(name: string, make: () => T): T {
  keep.things[name] ??= make()
  return keep.things[name] as T
}
