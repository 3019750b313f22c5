import { ArrowUpRight } from 'lucide-react'
import { usePromptBar } from '../../shell/promptStore'
import { tries } from '../../shell/tries'
import { useConnection } from '../../stores/connection'
import css from './Welcome.module.css'

export default function Welcome() {
  const { name, provider } = useConnection()
  const fill = usePromptBar((s) => s.fill)
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
        {tries.map(({ icon: Icon, title, line }) => (
          <li key={title}>
            <button type="button" className={css.thing} data-testid="try" onClick={() => fill(line)}>
              <span className={css.tile}>
                <Icon size={17} strokeWidth={1.8} aria-hidden />
              </span>
              <span className={css.words}>
                <b>{title}</b>
                <code>{line}</code>
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
