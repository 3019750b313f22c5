import type { Act } from '../../contract/contract'
import { dataOf, type AssociateResult, type Event, type Verification } from '../../contract/types'
import type { Services, Span } from '../../link/protocol'
import { commandLine, count, duration, modelWaits } from '../../text/format'
import { kindOf, numberOf } from './tree'

// Spans have no contents: they are in the events that a span names, and are read when it is opened.

type Page = Services['run.get'][1]

export interface Contents {
  /** The events that it began and ended with. */
  from?: Event
  to?: Event
  /** What a model wrote: the turn that a call of a model was made for. */
  turn?: Event
}

// How far from the event that meters a call the turn may be that was recorded of it: what else a run
// does meanwhile lies between.
const around = 100
const mostPages = 4

/** Reads the events that a span was made of. */
export async function readContents(span: Span, read: (after: number, limit: number) => Promise<Page>): Promise<Contents> {
  const one = async (sequence: number | undefined) => {
    if (!sequence) return undefined
    const { events } = await read(sequence - 1, 1)
    return events.find((e) => e.sequence === sequence)
  }
  const from = await one(span.from)
  const to = span.to === span.from ? from : await one(span.to)
  if (kindOf(span) !== 'model' || !from) return { ...(from && { from }), ...(to && { to }) }
  const events: Event[] = []
  let after = Math.max(0, from.sequence - around)
  let turn: Event | undefined
  for (let n = 0; n < mostPages && after < from.sequence + around; n++) {
    const page = await read(after, around)
    events.push(...page.events)
    turn = turnOf(from, events)
    if ((turn && turn.sequence > from.sequence) || !page.more) break
    after = page.next
  }
  return { from, ...(to && { to }), ...(turn && { turn }) }
}

/**
 * The turn that a call of a model was made for. Turns do not name their call: it is the one of the same task whose
 * tokens are the call's, the nearest where there are several.
 */
export function turnOf(metered: Event, events: Event[]): Event | undefined {
  const call = dataOf(metered, 'usage.metered')
  if (!call || call.outcome !== 'ok') return undefined
  const same = events.filter((e) => {
    const turn = dataOf(e, 'turn.recorded')
    return turn && (e.task ?? '') === (metered.task ?? '') && turn.usage.tokens_in === call.usage.tokens_in && turn.usage.tokens_out === call.usage.tokens_out
  })
  const far = (e: Event) => Math.abs(e.sequence - metered.sequence)
  return same.sort((a, b) => far(a) - far(b))[0]
}

export interface Part {
  title: string
  text: string
  /** Said below it. */
  note?: string
}

const json = (v: unknown) => JSON.stringify(v, null, 2) ?? ''

/** What a span's events say of its contents, for people. */
export function partsOf(span: Span, c: Contents): Part[] {
  try {
    const parts = said(span, c).filter((p) => p.text.trim() !== '')
    const large = [c.from, c.to].filter((e) => e?.dataref)
    if (large.length > 0) parts.push({ title: 'Not shown here', text: `What event ${large.map((e) => e!.sequence).join(' and ')} says is larger than 64 KB. On the command line, choir events --run ${large[0]!.run ?? ''} has it.` })
    return parts
  } catch {
    return [] // the events are not what this page knows of their types, and are shown as they are
  }
}

function said(span: Span, c: Contents): Part[] {
  switch (kindOf(span)) {
    case 'run': {
      const report = c.to && dataOf(c.to, 'run.reported')
      return [
        { title: 'Asked for', text: (c.from && dataOf(c.from, 'prompt.submitted')?.text) ?? '' },
        { title: 'Report', text: report?.summary ?? '' },
        { title: 'Why it failed', text: report?.error && report.error !== report.summary ? report.error : '' },
      ]
    }
    case 'task': {
      const task = c.from && dataOf(c.from, 'task.requested')?.task
      return [
        { title: 'Goal', text: task?.goal ?? '' },
        { title: 'Done when', text: (task?.acceptance ?? []).map((a) => `- ${a}`).join('\n') },
        { title: 'Steps', text: task?.steps?.length ? json(task.steps) : '' },
        ...outcome(c),
      ]
    }
    case 'agent':
      return outcome(c)
    case 'tool':
      return tool(c)
    case 'model':
      return model(c)
    case 'wait':
      return waiting(c)
    case 'check':
      return checks(c.to && dataOf(c.to, 'attempt.moved')?.verification)
    case 'still': {
      const d = c.from && dataOf(c.from, 'run.stood')
      return [{ title: 'What happened', text: d ? `It stood still for ${duration(d.for_ms)}.` : '' }]
    }
    default:
      return []
  }
}

function outcome(c: Contents): Part[] {
  const r: AssociateResult | undefined = c.to && dataOf(c.to, 'task.finished')?.result
  return [{ title: 'Result', text: r?.summary ?? '' }, ...checks(r?.verification)]
}

function tool(c: Contents): Part[] {
  const called = c.from && dataOf(c.from, 'tool.called')
  const returned = c.to && dataOf(c.to, 'tool.returned')
  const code = returned?.command?.exit_code
  const note = [code === undefined || returned?.output.startsWith('exit code') ? '' : `Exit code ${code}.`, returned?.output_ref ? 'This is the beginning; the whole output is kept beside the log.' : ''].filter(Boolean).join(' ')
  return [
    { title: 'Arguments', text: called ? json(called.args) : '' },
    { title: returned && !returned.ok ? 'What went wrong' : 'Result', text: returned ? returned.output || 'Nothing.' : '', ...(note && { note }) },
  ]
}

function model(c: Contents): Part[] {
  const turn = c.turn && dataOf(c.turn, 'turn.recorded')
  const call = c.from && dataOf(c.from, 'usage.metered')
  if (!turn) return [{ title: 'What it wrote', text: call && call.outcome !== 'ok' ? `Nothing: the call ended as ${call.outcome}.` : 'The turn of this call is not found in the log. A turn larger than 64 KB lies beside it.' }]
  const parts = turn.message.parts ?? []
  return [
    { title: 'What it was told last', text: turn.told ?? '' },
    { title: 'What it wrote', text: parts.map((p) => p.text ?? '').filter(Boolean).join('\n\n') },
    ...parts.filter((p) => p.call).map((p) => ({ title: `Call of ${p.call!.name}`, text: json(p.call!.args) })),
  ]
}

function waiting(c: Contents): Part[] {
  const asked = c.from && dataOf(c.from, 'question.asked')?.question
  const answered = c.to && dataOf(c.to, 'question.answered')
  if (asked) {
    return [
      { title: 'Question', text: asked.text, ...(asked.choices?.length && { note: `Choices: ${asked.choices.join(', ')}` }) },
      { title: 'Answer', text: answered?.answer ?? '', ...(answered?.default && { note: 'The default, for the time was up.' }) },
    ]
  }
  const approval = c.from && dataOf(c.from, 'approval.requested')
  if (approval) {
    const decided = c.to && dataOf(c.to, 'approval.answered')
    return [
      { title: 'Asked for', text: actOf(approval.act), ...(approval.claim && { note: `It says: ${approval.claim}` }) },
      { title: 'Decision', text: decided?.answer ?? '', ...(decided?.reason && { note: decided.reason }) },
    ]
  }
  const model = c.from && dataOf(c.from, 'model.waiting')
  return [{ title: 'Why', text: model ? modelWaits(model) : '' }]
}

const actOf = (a: Act) => `${a.kind}: ${a.url ?? `${a.host}:${a.port}`}`

function checks(v: Verification | undefined): Part[] {
  if (!v) return []
  const lines = (v.checks ?? []).map((k) => `${k.status}: ${k.name}${k.command?.argv?.length ? `\n    ${commandLine(k.command.argv)}` : ''}`)
  return [
    { title: 'Checks', text: [`${v.status}${v.tests ? `, ${count(v.tests, 'test')}` : ''}`, ...lines].join('\n'), ...(v.reason && { note: v.reason }) },
    { title: 'What they said', text: (v.said ?? []).join('\n') },
  ]
}

/** What is copied of a row: the span, with the events that it was made of. */
export function copyOf(span: Span, c: Contents): string {
  return json({ span, events: [c.from, c.to === c.from ? undefined : c.to, c.turn].filter((e) => e !== undefined) })
}

/** Whose work a span is, as far as it and what it is below say. */
export function agentOf(spans: Span[]): string {
  for (const s of spans) {
    const name = s.attributes?.['gen_ai.agent.name']
    if (typeof name === 'string') return numberOf(s, 'choir.attempt') > 1 ? `${name}, attempt ${numberOf(s, 'choir.attempt')}` : name
  }
  return ''
}
