export class History<T> {
  private states: T[]

  constructor(first: T) {
    this.states = [first]
  }

  get now(): T {
    return this.states[this.states.length - 1]!
  }

  push(state: T): void {
    this.states.push(state)
  }
}
