import { ArrowUpRight, Clock3, History, LibraryBig, Palette, Terminal } from 'lucide-react'
import { usePromptBar } from '../../shell/promptStore'
import { useCheckpoints } from '../../stores/checkpoints'
import { useConnection } from '../../stores/connection'
import { short } from '../../text/format'
import css from './Welcome.module.css'

const things = [
  { icon: Palette, title: 'Recolour the desktop', line: 'Make the desktop background deep blue' },
  { icon: Clock3, title: 'Add a clock app to it', line: 'Add a clock app to the desktop' },
  { icon: Terminal, title: 'Run a command', line: '!git log --oneline -5' },
  { icon: LibraryBig, title: 'Read a file and summarise it', line: 'Read choiros/package.json and summarise it' },
  { icon: History, title: 'Go back to before all that', line: '/restore' },
]

export default function Welcome() {
  const { name, provider } = useConnection()
  const fill = usePromptBar((s) => s.fill)
  // The first checkpoint, made before anybody changed anything, is the oldest one.
  const beginning = useCheckpoints((s) => (s.checkpoints.find((c) => c.kind === 'initial') ?? s.checkpoints.at(-1))?.commit)
  const lineOf = (line: string) => (line === '/restore' && beginning ? `/restore ${short(beginning)}` : line)
  return (
    <div className={css.page}>
      <header>
        <h1>{name ? `This is ${name}.` : 'Welcome.'}</h1>
        <p>
          Say what should happen, and it happens here: in files, in windows, in this desktop itself. Every change is kept, checked and can be undone. Five things
          to try:
        </p>
      </header>
      <ol className={css.things}>
        {things.map(({ icon: Icon, title, line }) => (
          <li key={title}>
            <button type="button" className={css.thing} data-testid="try" onClick={() => fill(lineOf(line))}>
              <span className={css.tile}>
                <Icon size={17} strokeWidth={1.8} aria-hidden />
              </span>
              <span className={css.words}>
                <b>{title}</b>
                <code>{lineOf(line)}</code>
              </span>
              <ArrowUpRight size={16} aria-hidden />
            </button>
          </li>
        ))}
      </ol>
      {provider?.rehearsal && (
        <p className={css.note} data-testid="rehearsal">
          <b>No model is connected.</b> The rehearsal provider plays written plans: these five work, anything else it declines. To connect one, start with{' '}
          <code>ANTHROPIC_API_KEY</code> or <code>OPENAI_API_KEY</code> set, or run <code>choir secrets set</code>.
        </p>
      )}
    </div>
  )
}
