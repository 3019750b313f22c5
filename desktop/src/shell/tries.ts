import { Clock3, History, LibraryBig, Palette, Terminal } from 'lucide-react'
import type { Checkpoint } from '../link/protocol'
import { useCheckpoints } from '../stores/checkpoints'
import { short } from '../text/format'

const tries = [
  { icon: Palette, title: 'Recolour the desktop', line: 'Make the desktop background deep blue' },
  { icon: Clock3, title: 'Add a clock app to it', line: 'Add a clock app to the desktop' },
  { icon: Terminal, title: 'Run a command', line: '!git log --oneline -5' },
  { icon: LibraryBig, title: 'Read a file and summarise it', line: 'Read choiros/package.json and summarise it' },
  { icon: History, title: 'Go back to before all that', line: '/restore' },
]

/** The newest checkpoint before anything was done in a new computer, of checkpoints newest first: what it began with, its first theme, too. */
export function beginningOf(checkpoints: Checkpoint[]): string | undefined {
  let at = checkpoints.findIndex((c) => c.kind === 'initial')
  if (at < 0) return checkpoints.at(-1)?.commit
  while (at > 0 && ['auto', 'manual'].includes(checkpoints[at - 1]!.kind)) at--
  return checkpoints[at]!.commit
}

/** Things to try, each with the line that it puts into the prompt bar. All of them work without a model. */
export function useTries(): typeof tries {
  const beginning = useCheckpoints((s) => beginningOf(s.checkpoints))
  return tries.map((t) => (t.line === '/restore' && beginning ? { ...t, line: `/restore ${short(beginning)}` } : t))
}
