// The ticks of a time axis.

const second = 1000
const minute = 60 * second
const hour = 60 * minute

const steps = [
  1, 2, 5, 10, 20, 50, 100, 200, 500, second, 2 * second, 5 * second, 10 * second, 15 * second, 30 * second,
  minute, 2 * minute, 5 * minute, 10 * minute, 15 * minute, 30 * minute, hour, 2 * hour, 6 * hour, 12 * hour, 24 * hour,
]

export interface Tick {
  /** Milliseconds since the run began. */
  at: number
  label: string
}

/** The ticks between two times in milliseconds, at most as many, at round numbers. */
export function ticks(from: number, to: number, most: number): Tick[] {
  const span = to - from
  if (!(span > 0) || most < 1) return []
  let step = steps.find((s) => span / s <= most) ?? 0
  if (step === 0) {
    const days = Math.ceil(span / most / (24 * hour))
    step = days * 24 * hour
  }
  const out: Tick[] = []
  for (let at = Math.ceil(from / step) * step; at <= to && out.length < most; at += step) out.push({ at, label: label(at, step) })
  return out
}

function label(at: number, step: number): string {
  if (at === 0) return '0'
  if (step < second && at < second) return `${at} ms`
  if (at < minute) return `${trim(at / second, step < 10 ? 3 : step < 100 ? 2 : step < second ? 1 : 0)} s`
  if (step < minute) return `${Math.floor(at / minute)} min ${trim((at % minute) / second, step < 10 ? 3 : step < 100 ? 2 : step < second ? 1 : 0)} s`
  if (at < hour) return `${at / minute} min`
  const minutes = Math.round((at % hour) / minute)
  return `${Math.floor(at / hour)} h${step < hour ? ` ${minutes} min` : ''}`
}

const trim = (n: number, digits: number) => n.toFixed(digits)
