/** Seconds as h:mm:ss, or m:ss below an hour. */
export function clock(seconds: number): string {
  const two = (n: number) => String(n).padStart(2, '0')
  const all = Math.floor(seconds)
  const [h, m, s] = [Math.floor(all / 3600), Math.floor(all / 60) % 60, all % 60]
  return h > 0 ? `${h}:${two(m)}:${two(s)}` : `${m}:${two(s)}`
}
