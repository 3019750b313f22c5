import type { Trace } from '../../link/protocol'

/** Reads a whole trace, which comes in pieces: none is longer than an answer may be. */
export async function readTrace(piece: (after: number) => Promise<Trace>): Promise<Trace> {
  const first = await piece(0)
  const spans = [...first.spans]
  let last = first
  while (last.more && last.spans.length > 0) {
    last = await piece(spans.length)
    spans.push(...last.spans)
  }
  const { more: _, ...rest } = last
  return { ...rest, spans }
}

/**
 * Reads something again when it may have changed: never two at a time, and after each one a pause of at
 * least a second, longer where reading takes long.
 */
export class Pacer {
  private timer: ReturnType<typeof setTimeout> | null = null
  private reading = false
  private again = false
  private closed = false

  constructor(
    private readonly read: () => Promise<void>,
    private readonly pause = 1000,
  ) {}

  /** Has it read now, or as soon as the pause is over. */
  note(): void {
    if (this.closed) return
    if (this.reading || this.timer) {
      this.again = true
      return
    }
    void this.go()
  }

  close(): void {
    this.closed = true
    if (this.timer) clearTimeout(this.timer)
    this.timer = null
  }

  private async go(): Promise<void> {
    this.reading = true
    this.again = false
    const began = Date.now()
    await this.read().catch(() => {}) // whoever reads shows what went wrong
    this.reading = false
    if (this.closed) return
    this.timer = setTimeout(() => {
      this.timer = null
      if (this.again) this.note()
    }, Math.max(this.pause, 4 * (Date.now() - began)))
  }
}
