import type { Event } from '../contract/types'

/**
 * Puts the events of one log in order. Sequences are dense (1, 2, 3, …), so events beyond
 * the next one are held until the missing ones have been fetched.
 */
export class Sequencer {
  private held = new Map<number, Event>()
  private highest = 0

  constructor(
    /** The last sequence applied. */
    public last: number,
    private readonly apply: (e: Event) => void,
    private readonly limit = 5000,
  ) {}

  /** Takes one event; false when something before it is missing. */
  take(e: Event): boolean {
    this.note(e.sequence)
    if (e.sequence > this.last && this.held.size < this.limit) this.held.set(e.sequence, e)
    this.drain()
    return !this.behind
  }

  /** Takes the last sequence that the host says it has; false when the log continues beyond what was applied. */
  note(sequence: number): boolean {
    this.highest = Math.max(this.highest, sequence)
    return !this.behind
  }

  /** Starts over after a snapshot; events at or below its sequence are dropped. */
  reset(sequence: number): void {
    this.last = sequence
    this.drain()
  }

  get behind(): boolean {
    return this.highest > this.last
  }

  /** How many events are known to be missing or held. */
  get distance(): number {
    return Math.max(0, this.highest - this.last)
  }

  private drain(): void {
    for (const n of this.held.keys()) if (n <= this.last) this.held.delete(n)
    for (let e = this.held.get(this.last + 1); e; e = this.held.get(this.last + 1)) {
      this.held.delete(e.sequence)
      this.last = e.sequence
      this.apply(e)
    }
  }
}
