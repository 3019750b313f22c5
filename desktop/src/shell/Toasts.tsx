import { useEffect, useState } from 'react'
import { X } from 'lucide-react'
import { useRuns } from '../stores/runs'
import { useToasts, type Toast } from '../stores/toasts'
import parts from '../parts/parts.module.css'
import { openThing } from './intents'
import css from './Toasts.module.css'

const stays = { plain: 5000, ok: 6000, accent: 6000, warn: 9000, danger: 15000 }

/** What happened lately: at most eight lines that disappear by themselves. */
export function Toasts() {
  const toasts = useToasts((s) => s.toasts)
  const [gone, setGone] = useState<ReadonlySet<number>>(new Set())
  const dismiss = (id: number) => setGone((s) => new Set(s).add(id))
  const shown = toasts.filter((t) => !gone.has(t.id))
  return (
    <ul className={css.toasts} aria-live="polite" aria-label="What happened lately">
      {shown.map((t) => (
        <Line key={t.id} toast={t} dismiss={dismiss} />
      ))}
    </ul>
  )
}

function Line({ toast, dismiss }: { toast: Toast; dismiss: (id: number) => void }) {
  const [held, setHeld] = useState(false)
  const prompt = useRuns((s) => (toast.run ? s.runs[toast.run]?.prompt : undefined))
  useEffect(() => {
    if (held) return
    const timer = setTimeout(() => dismiss(toast.id), Math.max(1000, toast.at + stays[toast.tone] - Date.now()))
    return () => clearTimeout(timer)
  })
  const { run } = toast
  return (
    <li className={css.toast} data-tone={toast.tone} data-testid="toast" onPointerEnter={() => setHeld(true)} onPointerLeave={() => setHeld(false)}>
      <span className={css.dot} />
      <span className={css.text}>
        <b>{toast.title}</b> {toast.detail && <span>{toast.detail}</span>}
      </span>
      {run && prompt !== undefined && (
        <button type="button" className={parts.ghost} onClick={() => openThing('run', run, prompt)}>
          Show
        </button>
      )}
      <button type="button" className={css.close} aria-label="Dismiss" onClick={() => dismiss(toast.id)}>
        <X size={13} aria-hidden />
      </button>
    </li>
  )
}
