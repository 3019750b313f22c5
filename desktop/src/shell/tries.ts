import { Clock3, History, LibraryBig, Palette, Terminal } from 'lucide-react'

/** Things to try, each with the line that it puts into the prompt bar. All of them work without a model. */
export const tries = [
  { icon: Palette, title: 'Recolour the desktop', line: 'Make the desktop background deep blue' },
  { icon: Clock3, title: 'Add a clock app to it', line: 'Add a clock app to the desktop' },
  { icon: Terminal, title: 'Run a command', line: '!git log --oneline -5' },
  { icon: LibraryBig, title: 'Read a file and summarise it', line: 'Read choiros/package.json and summarise it' },
  { icon: History, title: 'Go back to before all that', line: '/restore beginning' },
]
