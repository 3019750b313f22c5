import { ChevronRight } from 'lucide-react'
import type { Ref } from 'react'
import type { Provider } from '../link/protocol'
import { money, oneLine } from '../text/format'
import { possible, wordsOf, type Chosen } from './choices'
import css from './PromptBar.module.css'

/** What the next prompt uses, in a line that opens its choices. */
export function Uses({ provider, chosen, open, toggle, button }: { provider: Provider; chosen: Chosen; open: boolean; toggle: () => void; button: Ref<HTMLButtonElement> }) {
  const { name, model, rehearsal, network, budgetUSD, choices } = provider
  const words = wordsOf(chosen, choices, budgetUSD)
  const chose = Object.keys(possible(chosen, choices, budgetUSD)).length > 0
  const facts = [...(rehearsal ? [] : [network && network !== 'none' ? `network ${network}` : '', budgetUSD ? `≤ ${money(budgetUSD)}` : '']), ...words].filter(Boolean)
  return (
    <button type="button" ref={button} className={css.uses} data-testid="uses" data-chosen={chose} aria-expanded={open} aria-controls={open ? 'choices' : undefined} onClick={toggle}>
      <span className="sr-only">How this prompt runs: </span>
      <b>{rehearsal ? 'rehearsal' : oneLine(model || name, 28)}</b>
      {chose ? <em>{words.join(' · ')}</em> : facts.length > 0 && <span>{facts.join(' · ')}</span>}
      <ChevronRight size={13} aria-hidden />
    </button>
  )
}
