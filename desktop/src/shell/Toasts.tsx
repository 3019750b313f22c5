import { useEffect, useState } from 'react'
import { X } from 'lucide-react'
import parts from '../parts/parts.module.css'
import { useRuns } from '../stores/runs'
import { useToasts, type Toast } from '../stores/toasts'
import { useWindows } from '../stores/windows'
import { openThing } from './intents'
import { useScreen } from './screen'
import css from './Toasts.module.css'

const stays = { plain: 5000, ok: 6000, accent: 6000, warn: 9000, danger: 15000 }

/** What happened lately and no window shows: at most eight lines that disappear by themselves, one of each run. */
export function Toasts() {
  const { toasts, settle } = useToasts()
  const windows = useWindows((s) => s.windows)
  const { area, phone } = useScreen()
  useEffect(settle, [settle, windows, area, phone])
  const newest = Math.max(...toasts.map((t) => t.id))
  return (
    <ul className={css.toasts} aria-live="polite" aria-label="What happened lately">
      {toasts.map((t) => (
        <Line key={t.run ?? t.id} toast={t} newest={t.id === newest} />
      ))}
    </ul>
  )
}

function Line({ toast, newest }: { toast: Toast; newest: boolean }) {
  const { dismiss } = useToasts.getState()
  const [held, setHeld] = useState(false)
  const prompt = useRuns((s) => (toast.run ? s.runs[toast.run]?.prompt : undefined))
  useEffect(() => {
    if (held) return
    const timer = setTimeout(() => dismiss(toast.id), Math.max(1000, toast.at + stays[toast.tone] - Date.now()))
    return () => clearTimeout(timer)
  })
  const { run } = toast
  return (
    <li className={css.toast} data-tone={toast.tone} data-newest={newest} data-testid="toast" aria-atomic onPointerEnter={() => setHeld(true)} onPointerLeave={() => setHeld(false)}>
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
