export type Listener<T> = (value: T) => void

export class Emitter<T> {
  private listeners: Listener<T>[] = []

  on(listener: Listener<T>): () => void {
    this.listeners.push(listener)
    return () => {
      this.listeners.splice(this.listeners.indexOf(listener), 1)
    }
  }

  once(listener: Listener<T>): () => void {
    const off = this.on((value) => {
      listener(value)
      off()
    })
    return off
  }

  emit(value: T): number {
    let called = 0
    for (const listener of this.listeners) {
      listener(value)
      called++
    }
    return called
  }
}
