import type { Checkpoint } from '../link/protocol'

/**
 * The checkpoint before anything was done in a computer, of checkpoints newest first: the first one, or the one that its first theme was
 * kept with, as the system of who claimed it is.
 */
export function beginningOf(checkpoints: Checkpoint[]): string | undefined {
  const at = checkpoints.findIndex((c) => c.kind === 'initial')
  if (at < 0) return checkpoints.at(-1)?.commit
  const themed = checkpoints.slice(Math.max(0, at - 2), at).find((c) => c.kind === 'manual' && c.message.startsWith('Begins with '))
  return (themed ?? checkpoints[at]!).commit
}
