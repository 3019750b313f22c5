/** Seconds as h:mm:ss, or m:ss below an hour. */
export function clock(seconds: number): string {
  return Math.floor(seconds / 60) + ':' + (seconds % 60)
}
