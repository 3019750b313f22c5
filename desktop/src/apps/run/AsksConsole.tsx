import { ArrowUpRight, ShieldQuestion } from 'lucide-react'
import { consoleThere, openOnConsole } from '../../link/console'
import parts from '../../parts/parts.module.css'
import type { ApprovalView } from '../../stores/runs'
import { asksFor } from './asked'
import css from './Run.module.css'

/** What the run asks for and was not granted, and the way to where that is decided: agents write this page, so it is not decided here. */
export function AsksConsole({ asks }: { asks: ApprovalView[] }) {
  return (
    <section role="group" className={css.question} aria-label="Approval" data-testid="asks-console">
      {asks.map((a) => (
        <p key={a.approval}>
          <ShieldQuestion size={17} aria-hidden /> {asksFor(a.act)}
        </p>
      ))}
      <div className={css.choices}>
        {consoleThere ? (
          <button type="button" className={parts.primary} onClick={() => openOnConsole('inbox', asks[0]!.approval)}>
            Answer on the console <ArrowUpRight size={14} aria-hidden />
          </button>
        ) : (
          <code>choir approvals</code>
        )}
      </div>
      <small>Without an answer it is denied.</small>
    </section>
  )
}
