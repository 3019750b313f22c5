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
  let waiting: { id: number; args: A } | undefined
  const take = () => {
    const was = waiting
    waiting = undefined
    return was
  }
  const out = ((...args: A) => {
    if (waiting) timers.clear(waiting.id)
    waiting = {
      args,
      id: timers.set(() => {
        const was = take()
        if (was) action(...was.args)
      }, ms),
    }
  }) as Debounced<A>
  out.cancel = () => {
    const was = take()
    if (was) timers.clear(was.id)
  }
  out.flush = () => {
    const was = take()
    if (!was) return
    timers.clear(was.id)
    action(...was.args)
  }
  return out
}
