import { useEffect, useRef, useState } from 'react'
import { Eye } from 'lucide-react'
import type { Effort, Route } from '../contract/contract'
import type { Provider } from '../link/protocol'
import { money } from '../text/format'
import { possible, type Chosen } from './choices'
import { meaning, usualEffort } from './choiceWords'
import css from './Choices.module.css'

const ways: [Route | '', string][] = [['', 'Automatic'], ['plan', 'Plan it first'], ['direct', 'One Associate at once']]
const amounts: Record<Effort, string> = { none: 'None', low: 'Little', medium: 'Some', high: 'Much' }

/** The choices for the prompt that is being written. They count for that one. */
export default function Choices({ provider, chosen, choose, close }: { provider: Provider; chosen: Chosen; choose: (c: Chosen) => void; close: () => void }) {
  const c = provider.choices
  const now = possible(chosen, c, provider.budgetUSD)
  const panel = useRef<HTMLElement>(null)
  const [spend, setSpend] = useState(now.spend ? String(now.spend) : '')
  useEffect(() => panel.current?.querySelector<HTMLInputElement>('input:checked, input')?.focus(), [])
  const pick = (change: { [K in keyof Chosen]?: Chosen[K] | undefined }) => {
    const next = { ...now, ...change }
    choose(Object.fromEntries(Object.entries(next).filter(([, v]) => v !== undefined)))
  }
  return (
    <section
      ref={panel}
      id="choices"
      className={css.panel}
      aria-label="How this prompt runs"
      data-testid="choices"
      tabIndex={-1}
      onKeyDown={(e) => {
        if (e.key !== 'Escape' && e.key !== 'Enter') return
        e.preventDefault()
        close()
      }}
    >
      <p className={css.facts}>
        {provider.rehearsal ? 'Rehearsal: written plans are played.' : [provider.model, provider.budgetUSD ? `at most ${money(provider.budgetUSD)}` : '', `network: ${provider.network || 'none'}`].filter(Boolean).join(' · ')}
      </p>
      {(c?.routes?.length ?? 0) > 0 && (
        <Row name="route" title="Way" hint={meaning(now.route ?? '', c)} at={now.route ?? ''}
          options={ways.filter(([r]) => r === '' || c?.routes?.includes(r))} pick={(r) => pick({ route: r || undefined })} />
      )}
      {(c?.efforts?.length ?? 0) > 0 && (
        <Row name="effort" title="Thinking" hint={now.effort ? 'How much the models think before they answer.' : `It thinks ${usualEffort(c)}.`} at={now.effort ?? ''}
          options={[['', 'As usual'], ...(c?.efforts ?? []).map((e): [Effort, string] => [e, amounts[e]])]} pick={(e) => pick({ effort: e || undefined })} />
      )}
      {(c?.models?.length ?? 0) > 0 && (
        <div className={css.row}>
          <label className={css.title} htmlFor="choice-model">
            Model
          </label>
          <select id="choice-model" className={css.field} data-framed value={now.model ?? ''} onChange={(e) => pick({ model: e.target.value || undefined })}>
            <option value="">As usual ({provider.model})</option>
            {c?.models?.map((m) => (
              <option key={m} value={m}>
                {m}
              </option>
            ))}
          </select>
        </div>
      )}
      {!provider.rehearsal && (
        <div className={css.row}>
          <label className={css.title} htmlFor="choice-spend">
            Cost, at most
          </label>
          <div className={css.spend}>
            <input id="choice-spend" className={css.field} data-framed inputMode="decimal" autoComplete="off" maxLength={8} value={spend}
              placeholder={provider.budgetUSD ? `${provider.budgetUSD}` : 'as much as it takes'} aria-describedby="choice-spend-hint" aria-invalid={spend !== '' && now.spend === undefined}
              onChange={(e) => {
                setSpend(e.target.value)
                pick({ spend: Number(e.target.value.replace(',', '.')) || undefined })
              }} />
            <span>USD</span>
          </div>
          <p className={css.hint} id="choice-spend-hint">
            {spend !== '' && now.spend === undefined
              ? provider.budgetUSD ? `A number above 0 and below ${provider.budgetUSD}, which is what this computer allows.` : 'A number above 0.'
              : 'It ends when this is used up; what it wrote is kept.'}
          </p>
        </div>
      )}
      <div className={css.row}>
        <span className={css.title}>Before it is live</span>
        {c?.review ? (
          <p className={css.fixed}>
            <Eye size={14} aria-hidden /> You look at everything first: this computer is set so.
          </p>
        ) : (
          <label className={css.check}>
            <input type="checkbox" checked={now.review === true} onChange={(e) => pick({ review: e.target.checked || undefined })} /> Let me look at it first
          </label>
        )}
      </div>
    </section>
  )
}

interface RowProps<T extends string> {
  name: string
  title: string
  hint: string
  at: T
  options: [T, string][]
  pick: (value: T) => void
}

function Row<T extends string>({ name, title, hint, at, options, pick }: RowProps<T>) {
  return (
    <fieldset className={css.row} aria-describedby={`choice-${name}`}>
      <legend className={css.title}>{title}</legend>
      <div className={css.options}>
        {options.map(([value, label]) => (
          <label key={value} className={css.option}>
            <input type="radio" name={name} value={value} checked={at === value} onChange={() => pick(value)} />
            <span>{label}</span>
          </label>
        ))}
      </div>
      <p className={css.hint} id={`choice-${name}`}>
        {hint}
      </p>
    </fieldset>
  )
}
