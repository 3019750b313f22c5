import { readdirSync, readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import type { Event } from '../src/contract/types'
import { blank, reduce, type RunView } from '../src/stores/runs'

interface Case { name: string; run: string; events: Event[]; want: unknown }

// These are the cases of the host's reducer (internal/run), whose own tests pass them too.
const dir = '../internal/run/testdata/'
const cases = readdirSync(dir).map((f) => JSON.parse(readFileSync(dir + f, 'utf8')) as Case)

const statuses: Record<string, string> = { waiting: 'requested', working: 'running' }

function view(r: RunView): unknown {
  return {
    status: r.status, reason: r.reason, prompt: r.prompt, objective: r.objective, plan: r.plan.map((p) => `${p.status} ${p.text}`),
    provider: r.provider, model: r.model, document: r.document ?? '', summary: r.summary ?? '', error: r.error, verified: r.verified ?? '',
    tokens_in: r.usage?.tokens_in, tokens_out: r.usage?.tokens_out, cost_usd: r.usage?.cost_usd, stood_ms: r.stood,
    waits: r.waits.length > 0 ? r.waits.map((w) => ({ task: w.task, model: `${w.provider}/${w.model}`, code: w.code, since: w.since })) : undefined,
    fallback: r.fallback || undefined,
    direct: r.direct || undefined,
    questions: r.questions.map((q) => ({ id: q.id, answer: q.answer ?? '' })),
    tasks: r.tasks.map((t) => ({
      task: t.task, kind: t.kind, goal: t.goal, status: statuses[t.status] ?? t.status, attempt: t.attempt, verification: t.result?.verification.status ?? '',
    })),
  }
}

describe('a run is what the host makes of it', () => {
  it('has cases', () => expect(cases.length).toBeGreaterThan(0))
  it.each(cases)('$name', (c) => {
    expect(view(c.events.reduce(reduce, blank(c.run, '')))).toEqual(c.want)
    expect(view(c.events.flatMap((e) => [e, e]).reduce(reduce, blank(c.run, '')))).toEqual(c.want)
  })
})
