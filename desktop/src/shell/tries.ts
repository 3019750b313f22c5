import { Clock3, History, LibraryBig, Palette, Terminal } from 'lucide-react'
import { useCheckpoints } from '../stores/checkpoints'
import { short } from '../text/format'

const tries = [
  { icon: Palette, title: 'Recolour the desktop', line: 'Make the desktop background deep blue' },
  { icon: Clock3, title: 'Add a clock app to it', line: 'Add a clock app to the desktop' },
  { icon: Terminal, title: 'Run a command', line: '!git log --oneline -5' },
  { icon: LibraryBig, title: 'Read a file and summarise it', line: 'Read choiros/package.json and summarise it' },
  { icon: History, title: 'Go back to before all that', line: '/restore' },
]

/** Things to try, each with the line that it puts into the prompt bar. All of them work without a model. */
export function useTries(): typeof tries {
  // The first checkpoint, made before anybody changed anything, is the oldest one.
  const beginning = useCheckpoints((s) => (s.checkpoints.find((c) => c.kind === 'initial') ?? s.checkpoints.at(-1))?.commit)
  return tries.map((t) => (t.line === '/restore' && beginning ? { ...t, line: `/restore ${short(beginning)}` } : t))
}
