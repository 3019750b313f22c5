import parts from '../../parts/parts.module.css'
import { shellCommands } from '../../shell/intents'
import { keys } from '../../shell/keys'
import { usePromptBar } from '../../shell/promptStore'
import css from './Help.module.css'

export default function Help() {
  const fill = usePromptBar((s) => s.fill)
  return (
    <div className={css.page}>
      <h2>In the prompt bar</h2>
      <dl>
        <dt>text</dt>
        <dd>goes to the Director, who plans and delegates it</dd>
        <dt>
          <code>!command</code>
        </dt>
        <dd>runs in your workspace, as you</dd>
        {shellCommands.map((c) => (
          <div key={c.name} className={css.row}>
            <dt>
              <button type="button" className={css.command} onClick={() => fill(`/${c.name}${c.args ? ' ' : ''}`)}>
                /{c.name} {c.args && <i>{c.args}</i>}
              </button>
            </dt>
            <dd>{c.hint}</dd>
          </div>
        ))}
      </dl>
      <h2>Keys</h2>
      <dl>
        {keys.map((k) => (
          <div key={k.what} className={css.row}>
            <dt>
              {k.keys.map((key) => (
                <kbd key={key} className={parts.kbd}>
                  {key}
                </kbd>
              ))}
            </dt>
            <dd>{k.what}</dd>
          </div>
        ))}
      </dl>
    </div>
  )
}
