export class Heap<T> {
  private items: T[] = []
  constructor(private less: (a: T, b: T) => boolean) {}

  get size(): number {
    return this.items.length
  }

  push(item: T): void {
    this.items.push(item)
    let i = this.items.length - 1
    while (i > 0) {
      const up = Math.floor(i / 2)
      if (!this.less(this.items[i], this.items[up])) break
      ;[this.items[i], this.items[up]] = [this.items[up], this.items[i]]
      i = up
    }
  }

  pop(): T | undefined {
    const first = this.items[0]
    const last = this.items.pop()
    if (this.items.length && last !== undefined) this.items[0] = last
    return first
  }
}
