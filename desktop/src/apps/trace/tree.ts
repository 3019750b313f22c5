import type { Span, Trace } from '../../link/protocol'
import { duration } from '../../text/format'

// What a trace says, as a tree whose rows can be shown. Nothing here knows of the page.

export type Kind = 'run' | 'agent' | 'task' | 'model' | 'tool' | 'wait' | 'check' | 'publish' | 'still' | 'other'

/** The kinds in the order in which the filter offers them. */
export const kindWords: Record<Kind, string> = {
  model: 'Model', tool: 'Tool', agent: 'Agent', task: 'Task', wait: 'Waiting', check: 'Check', publish: 'Publish', still: 'Stood still', run: 'Run', other: 'Other',
}

const byName: [string, Kind][] = [
  ['invoke_workflow', 'run'], ['invoke_agent', 'agent'], ['attempt', 'agent'], ['task', 'task'], ['chat', 'model'], ['execute_tool', 'tool'],
  ['wait_for_', 'wait'], ['verify', 'check'], ['publish', 'publish'], ['stand_still', 'still'],
]

export function kindOf(s: Span): Kind {
  return byName.find(([prefix]) => s.name.startsWith(prefix))?.[1] ?? 'other'
}

/** How a span stands: failed and cancelled have ended so, open goes on, unfinished never ended by itself, unknown ended without proof. */
export type Standing = 'ok' | 'failed' | 'cancelled' | 'open' | 'unfinished' | 'unknown'

export interface Node {
  span: Span
  kind: Kind
  title: string
  standing: Standing
  depth: number
  parent: Node | null
  children: Node[]
  from: number
  /** Its end; of one that goes on NaN. */
  to: number
}

/** A span's attribute if it is a text, else ''. */
export function textOf(s: Span, key: string): string {
  const v = s.attributes?.[key]
  return typeof v === 'string' ? v : ''
}

/** A span's attribute if it is a number, else 0. */
export function numberOf(s: Span, key: string): number {
  const v = s.attributes?.[key]
  return typeof v === 'number' && Number.isFinite(v) ? v : 0
}

const waits: Record<string, string> = { wait_for_answer: 'for your answer', wait_for_approval: 'for an approval', wait_for_model: 'for the model' }

function titleOf(s: Span, kind: Kind): string {
  const rest = s.name.slice(s.name.indexOf(' ') + 1)
  switch (kind) {
    case 'run':
      return ''
    case 'agent': {
      const n = numberOf(s, 'choir.attempt')
      const name = s.name === 'attempt' ? '' : rest
      return [name, n > 1 || !name ? `attempt ${n || 1}` : ''].filter(Boolean).join(', ')
    }
    case 'wait':
      return waits[s.name] ?? s.name
    case 'task':
    case 'model':
    case 'tool':
      return rest === s.name ? '' : rest
    case 'still':
      return { suspended: 'the machine was suspended', stopped: 'choir did', box: 'a box did' }[textOf(s, 'choir.stood.why')] ?? ''
    case 'other':
      return s.name
    default:
      return ''
  }
}

function standingOf(s: Span, kind: Kind, ended: boolean): Standing {
  if (s.error === 'cancelled') return 'cancelled'
  if (s.error) return 'failed'
  if (s.attributes?.['choir.unfinished'] === true) return 'unfinished'
  if (!s.end) return ended ? 'unfinished' : 'open'
  const proof = textOf(s, 'choir.verification.status')
  if (proof === 'fail') return 'failed'
  return proof === 'unknown' || (kind === 'check' && proof === '') ? 'unknown' : 'ok'
}

/** The spans as a tree, children in the order in which they began; whatever names no span before it is a root. */
export function treeOf(trace: Trace): Node[] {
  const known = new Map<string, Node>()
  const roots: Node[] = []
  for (const span of trace.spans) {
    const parent = known.get(span.parent ?? '') ?? null
    const kind = kindOf(span)
    const node: Node = {
      span, kind, parent, title: titleOf(span, kind), standing: standingOf(span, kind, trace.ended), depth: parent ? parent.depth + 1 : 0, children: [],
      from: Date.parse(span.start), to: span.end ? Date.parse(span.end) : NaN,
    }
    known.set(span.id, node)
    ;(parent ? parent.children : roots).push(node)
  }
  for (const list of [roots, ...[...known.values()].map((n) => n.children)]) list.sort((a, b) => a.from - b.from)
  return roots
}

/** Every node, each behind the one that it is below. */
export function* walk(nodes: Node[]): Generator<Node> {
  for (const n of nodes) {
    yield n
    yield* walk(n.children)
  }
}

export interface Filter {
  text: string
  kind: Kind | 'all'
  failed: boolean
}

export const noFilter: Filter = { text: '', kind: 'all', failed: false }

export const filters = (f: Filter): boolean => f.text.trim() !== '' || f.kind !== 'all' || f.failed

/** Whether a node passes: every word of the text must be in its name, id or attributes. */
export function matches(n: Node, f: Filter): boolean {
  if (f.failed && n.standing !== 'failed') return false
  if (f.kind !== 'all' && n.kind !== f.kind) return false
  const words = f.text.toLowerCase().split(/\s+/).filter(Boolean)
  if (words.length === 0) return true
  const hay = `${kindWords[n.kind]} ${n.title} ${n.span.name} ${n.span.id} ${n.span.error ?? ''} ${Object.values(n.span.attributes ?? {}).join(' ')}`.toLowerCase()
  return words.every((w) => hay.includes(w))
}

export interface Row {
  node: Node
  /** Whether what is below it shows; null where nothing is. */
  open: boolean | null
  /** Its place among those that are shown below the same node, from 1, and how many those are. */
  place: number
  of: number
  /** Whether it is shown only for what is below it. */
  faint: boolean
}

/**
 * The rows that show: all but what is below a closed one. With a filter those that match, and what they are
 * below, whatever is closed.
 */
export function rowsOf(roots: Node[], closed: ReadonlySet<string>, filter: Filter): Row[] {
  const rows: Row[] = []
  const filtered = filters(filter)
  const kept = new Set<Node>()
  if (filtered) {
    for (const n of walk(roots)) {
      if (!matches(n, filter)) continue
      for (let up: Node | null = n; up && !kept.has(up); up = up.parent) kept.add(up)
    }
  }
  const add = (nodes: Node[]) => {
    const list = filtered ? nodes.filter((n) => kept.has(n)) : nodes
    list.forEach((node, i) => {
      const below = filtered ? node.children.some((n) => kept.has(n)) : node.children.length > 0
      const open = below && (filtered || !closed.has(node.span.id))
      rows.push({ node, open: below ? open : null, place: i + 1, of: list.length, faint: filtered && !matches(node, filter) })
      if (open) add(node.children)
    })
  }
  add(roots)
  return rows
}

export interface Totals {
  ms: number
  tokensIn: number
  tokensOut: number
  cached: number
  cost: number
  models: number
  tools: number
  failed: number
  /** Time in which it waited for somebody or a model, and in which it stood still: times that overlap count once. */
  waitedMs: number
  stoodMs: number
}

export function totalsOf(roots: Node[], now: number): Totals {
  const t: Totals = { ms: 0, tokensIn: 0, tokensOut: 0, cached: 0, cost: 0, models: 0, tools: 0, failed: 0, waitedMs: 0, stoodMs: 0 }
  const times: Record<'wait' | 'still', [number, number][]> = { wait: [], still: [] }
  for (const n of walk(roots)) {
    if (n.standing === 'failed') t.failed++
    if (n.kind === 'tool') t.tools++
    if (n.kind === 'wait' || n.kind === 'still') times[n.kind].push([n.from, Number.isNaN(n.to) ? now : n.to])
    if (n.kind !== 'model') continue
    t.models++
    t.tokensIn += numberOf(n.span, 'gen_ai.usage.input_tokens')
    t.tokensOut += numberOf(n.span, 'gen_ai.usage.output_tokens')
    t.cached += numberOf(n.span, 'gen_ai.usage.cache_read.input_tokens')
    t.cost += numberOf(n.span, 'choir.cost_usd')
  }
  const run = roots[0]
  if (run) {
    // Of a run that has ended, the report has what spans that were dropped used, too.
    t.tokensIn = Math.max(t.tokensIn, numberOf(run.span, 'choir.run.tokens_in'))
    t.tokensOut = Math.max(t.tokensOut, numberOf(run.span, 'choir.run.tokens_out'))
    t.cost = Math.max(t.cost, numberOf(run.span, 'choir.run.cost_usd'))
    t.ms = Math.max(0, (Number.isNaN(run.to) ? now : run.to) - run.from)
  }
  t.waitedMs = covered(times.wait)
  t.stoodMs = covered(times.still)
  return t
}

/** How long at least one of some times lasts. */
export function covered(times: [number, number][]): number {
  let sum = 0
  let until = -Infinity
  for (const [from, to] of [...times].sort((a, b) => a[0] - b[0])) {
    if (to > until) sum += to - Math.max(from, until)
    until = Math.max(until, to)
  }
  return sum
}

/** The times that a trace's axis covers: at least a millisecond, until now where something goes on. */
export function extentOf(roots: Node[], now: number): [number, number] {
  let from = Infinity
  let to = -Infinity
  let goesOn = false
  for (const n of walk(roots)) {
    from = Math.min(from, n.from)
    to = Math.max(to, n.from, Number.isNaN(n.to) ? n.from : n.to)
    goesOn ||= n.standing === 'open'
  }
  if (from === Infinity) return [0, 1]
  return [from, Math.max(from + 1, goesOn ? Math.max(to, now) : to)]
}

/** How long a node took, in words. */
export function took(n: Node, now: number): string {
  return duration(Math.max(0, (Number.isNaN(n.to) ? now : n.to) - n.from))
}
