export class History<T> {
  private states: T[]
  private at = 0

  constructor(first: T, private readonly limit = 100) {
    this.states = [first]
  }

  get now(): T {
    return this.states[this.at]!
  }

  push(state: T): void {
    this.states = [...this.states.slice(0, this.at + 1), state].slice(-this.limit)
    this.at = this.states.length - 1
  }

  undo(): boolean {
    if (this.at === 0) return false
    this.at--
    return true
  }

  redo(): boolean {
    if (this.at === this.states.length - 1) return false
    this.at++
    return true
  }
}
