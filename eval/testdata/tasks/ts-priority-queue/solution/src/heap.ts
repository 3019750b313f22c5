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
      const up = (i - 1) >> 1
      if (!this.less(this.items[i], this.items[up])) break
      this.swap(i, up)
      i = up
    }
  }

  pop(): T | undefined {
    if (this.items.length < 2) return this.items.pop()
    const first = this.items[0]
    this.items[0] = this.items.pop() as T
    for (let i = 0; ; ) {
      let least = i
      for (const child of [2 * i + 1, 2 * i + 2]) {
        if (child < this.items.length && this.less(this.items[child], this.items[least])) least = child
      }
      if (least === i) return first
      this.swap(i, least)
      i = least
    }
  }

  private swap(a: number, b: number): void {
    ;[this.items[a], this.items[b]] = [this.items[b], this.items[a]]
  }
}
