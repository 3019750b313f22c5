export interface Timers {
  set(action: () => void, ms: number): number
  clear(id: number): void
}

export interface Debounced<A extends unknown[]> {
  (...args: A): void
  cancel(): void
  flush(): void
}

export function debounce<A extends unknown[]>(action: (...args: A) => void, ms: number, timers: Timers): Debounced<A> {
  let id: number | undefined
  const out = ((...args: A) => {
    if (id) return
    id = timers.set(() => action(...args), ms)
  }) as Debounced<A>
  out.cancel = () => {
    id = undefined
  }
  out.flush = () => {}
  return out
}
