export type Listener<T> = (value: T) => void

export class Emitter<T> {
  private listeners: { call: Listener<T> }[] = []

  on(listener: Listener<T>): () => void {
    const mine = { call: listener }
    this.listeners.push(mine)
    return () => {
      this.listeners = this.listeners.filter((l) => l !== mine)
    }
  }

  once(listener: Listener<T>): () => void {
    const off = this.on((value) => {
      off()
      listener(value)
    })
    return off
  }

  emit(value: T): number {
    let called = 0
    for (const listener of this.listeners) {
      if (!this.listeners.includes(listener)) continue
      listener.call(value)
      called++
    }
    return called
  }
}
