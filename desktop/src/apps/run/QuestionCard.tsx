import { useEffect, useState } from 'react'
import { MessageCircleQuestion } from 'lucide-react'
import type { Question } from '../../contract/types'
import parts from '../../parts/parts.module.css'
import { act } from '../../shell/intents'
import { duration } from '../../text/format'
import css from './Run.module.css'

/** A question that only the user can decide, with its choices and with what happens if nobody answers. */
export function QuestionCard({ run, question }: { run: string; question: Question }) {
  const [text, setText] = useState('')
  const [sent, setSent] = useState(false)
  const [now, setNow] = useState(() => Date.now())
  useEffect(() => {
    if (!question.deadline) return
    const timer = setInterval(() => setNow(Date.now()), 1000)
    return () => clearInterval(timer)
  }, [question.deadline])
  const answer = (a: string) => {
    setSent(true)
    act('question.answered', { question: question.id, answer: a }, { run }).catch(() => setSent(false)) // the link told why
  }
  const left = question.deadline ? Date.parse(question.deadline) - now : NaN
  return (
    <section role="group" className={css.question} aria-label="Question" data-testid="question">
      <p>
        <MessageCircleQuestion size={17} aria-hidden /> {question.text}
      </p>
      {question.choices && question.choices.length > 0 ? (
        <div className={css.choices}>
          {question.choices.map((c) => (
            <button key={c} type="button" disabled={sent} className={c === question.default ? parts.primary : parts.button} onClick={() => answer(c)}>
              {c}
            </button>
          ))}
        </div>
      ) : (
        <form
          className={css.steer}
          onSubmit={(e) => {
            e.preventDefault()
            if (text.trim()) answer(text.trim())
          }}
        >
          <input data-framed data-things value={text} onChange={(e) => setText(e.target.value)} placeholder="Your answer" aria-label="Your answer" disabled={sent} />
          <button type="submit" className={parts.primary} disabled={sent || !text.trim()}>
            Answer
          </button>
        </form>
      )}
      {(question.default || Number.isFinite(left)) && (
        <small>
          {Number.isFinite(left) && (left > 0 ? `${duration(Math.ceil(left / 1000) * 1000)} left. ` : 'Time is up. ')}
          {question.default && `Without an answer: ${question.default}.`}
        </small>
      )}
    </section>
  )
}
