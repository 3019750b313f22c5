import { faultOf, painted } from '../theme/theme'
import type { Event } from '../contract/types'
import { dataOf } from '../contract/types'
import { authorName, commandLine, count, duration, gist, modelWaits, oneLine, short, stoodStill } from './format'

export type Tone = 'plain' | 'ok' | 'warn' | 'danger' | 'accent'

export interface Description {
  title: string
  detail: string
  tone: Tone
  /** Quiet events are shown in the log only; the others become toasts. */
  quiet: boolean
}

const loud = (tone: Tone, title: string, detail = ''): Description => ({ tone, title, detail, quiet: false })
const quiet = (title: string, detail = '', tone: Tone = 'plain'): Description => ({ tone, title, detail, quiet: true })

/** Says in words what an event means, or null for a type this page does not know. */
export function describe(e: Event): Description | null {
  try {
    return words(e)
  } catch {
    // The data are not what this page knows of the type; the log still shows them.
    return quiet(e.type)
  }
}

function words(e: Event): Description | null {
  switch (e.type) {
    case 'prompt.submitted':
      return quiet('Prompt', oneLine(dataOf(e, e.type)?.text ?? ''), 'accent')
    case 'run.started':
      return quiet('Run started', dataOf(e, e.type)?.model)
    case 'run.planned':
      return quiet('Plan', oneLine(dataOf(e, e.type)?.objective ?? ''))
    case 'run.moved': {
      const d = dataOf(e, e.type)
      return quiet(`Run ${d?.status ?? 'moved'}`, d?.reason) // what it waits for says so itself
    }
    case 'question.asked':
      return loud('accent', 'The Director asks', oneLine(dataOf(e, e.type)?.question.text ?? ''))
    case 'question.answered':
      return quiet('Answered', oneLine(dataOf(e, e.type)?.answer ?? ''))
    case 'review.requested': {
      const n = dataOf(e, e.type)?.paths ?? 0
      return loud('accent', 'To be looked at', `${count(n, 'changed path')} wait until you have looked at them`)
    }
    case 'review.answered': {
      const d = dataOf(e, e.type)
      return quiet('Looked at', d?.decision === 'publish' ? (d.only?.length ? 'a part is published' : 'it is published') : d?.decision === 'revise' ? 'sent back with comments' : 'nothing of it is published')
    }
    case 'run.stood': {
      const d = dataOf(e, e.type)
      return d ? loud('warn', 'Stood still', stoodStill(d)) : quiet('Stood still')
    }
    case 'model.waiting': {
      const d = dataOf(e, e.type)
      return d ? loud('warn', 'Waiting for the model', modelWaits(d)) : quiet('Waiting for the model')
    }
    case 'model.resumed': {
      const d = dataOf(e, e.type)
      if (!d) return quiet('Not waiting for the model any more')
      if (d.instead && d.outcome === 'answered') return loud('warn', 'Another model answers', `${d.provider}/${d.model} in the place of ${d.instead}`)
      if (d.outcome === 'gave_up') return loud('danger', 'The model was waited for in vain', `${d.provider}/${d.model}, ${duration(d.waited_ms)}`)
      return quiet(d.outcome === 'answered' ? 'The model answers again' : 'Not waiting for the model any more', `${d.provider}/${d.model}, ${duration(d.waited_ms)}`)
    }
    case 'model.switched':
      return quiet('Switched to another model', dataOf(e, e.type)?.model)
    case 'run.steered':
      return quiet('Steered', oneLine(dataOf(e, e.type)?.text ?? ''))
    case 'run.commanded':
      return quiet(`Run: ${dataOf(e, e.type)?.command ?? ''}`)
    case 'run.reported': {
      const d = dataOf(e, e.type)
      if (!d) return loud('plain', 'Run ended')
      const summary = gist(d.summary)
      if (d.status === 'cancelled') return loud('plain', 'Run cancelled', summary)
      if (d.status === 'failed') return loud('danger', 'Run failed', summary)
      if (d.verified === 'pass') return loud('ok', 'Done and verified', summary)
      return d.verified === 'fail' ? loud('danger', 'Done, but a check failed', summary) : loud('warn', 'Done, not verified', summary)
    }
    case 'task.requested':
      return quiet('Task', oneLine(dataOf(e, e.type)?.task.goal ?? ''))
    case 'task.started':
      return quiet('Task started', `attempt ${dataOf(e, e.type)?.attempt ?? 1}`)
    case 'task.finished': {
      const r = dataOf(e, e.type)?.result
      return quiet(`Task ${r?.status ?? 'finished'}`, gist(r?.summary ?? ''), r?.status === 'ok' ? 'ok' : 'danger')
    }
    case 'tool.called': {
      const d = dataOf(e, e.type)
      return quiet(`Tool ${d?.name ?? ''}`, oneLine(JSON.stringify(d?.args ?? {})))
    }
    case 'tool.returned': {
      const d = dataOf(e, e.type)
      return quiet(`Tool ${d?.name ?? ''} ${d?.ok ? 'returned' : 'failed'}`, oneLine(d?.output ?? ''), d?.ok ? 'plain' : 'danger')
    }
    case 'program.reported': {
      const d = dataOf(e, e.type)
      const name = d?.program ?? 'program'
      if (d?.what === 'call') return quiet(`${name}: call ${d.status ?? ''}`, oneLine(d.text), d.status === 'failed' ? 'danger' : 'plain')
      return quiet(d?.what === 'plan' ? `${name}: plan` : `${name} says`, oneLine(d?.text ?? ''))
    }
    case 'task.outdated': {
      const files = dataOf(e, e.type)?.files ?? []
      return quiet('A task is told', `${count(files.length, 'file')} changed meanwhile: ${oneLine(files.map((f) => f.path).join(', '))}`)
    }
    case 'turn.recorded':
      return quiet('Model turn')
    case 'verification.finished': {
      const s = dataOf(e, e.type)?.verification.status
      return quiet(`Verification: ${s ?? 'unknown'}`, '', s === 'pass' ? 'ok' : s === 'fail' ? 'danger' : 'warn')
    }
    case 'command.started':
      return quiet('Command', oneLine(commandLine(dataOf(e, e.type)?.argv ?? [])))
    case 'command.finished': {
      const code = dataOf(e, e.type)?.exit_code
      return quiet(`Command ended with ${code}`, '', code === 0 ? 'ok' : 'danger')
    }
    case 'checkpoint.created': {
      const d = dataOf(e, e.type)
      const text = oneLine(d?.message ?? '')
      if (d?.kind === 'manual') return loud('ok', 'Checkpoint', text)
      return d?.kind === 'task' && d.verified === 'pass' ? loud('ok', 'Verified checkpoint', text) : quiet('Checkpoint', text)
    }
    case 'checkpoint.restored': {
      const d = dataOf(e, e.type)
      return loud('accent', d?.undo ? 'Restore undone' : 'Restored', d ? `to ${short(d.to)}` : '')
    }
    case 'publish.started':
      return quiet('Publishing')
    case 'publish.finished': {
      const conflicts = dataOf(e, e.type)?.conflicts?.length ?? 0
      return conflicts > 0 ? loud('warn', 'Your version was kept', count(conflicts, 'conflicting file')) : quiet('Published')
    }
    case 'document.revised': {
      const d = dataOf(e, e.type)
      return quiet('Document', d ? `${d.title}, revision ${d.revision}` : '')
    }
    case 'document.proposed': {
      const by = dataOf(e, e.type)?.author
      return loud('accent', `${by ? authorName(by) : 'An agent'} proposes a change`, 'to what was written meanwhile')
    }
    case 'proposal.resolved': {
      const d = dataOf(e, e.type)
      return quiet(`Proposal ${d?.resolution ?? 'resolved'}`, d?.revision ? `in revision ${d.revision}` : '')
    }
    case 'theme.changed': {
      const theme = dataOf(e, e.type)?.theme
      const changed = theme && !faultOf(theme) ? painted(theme).changed : []
      return loud('accent', 'Theme', theme && (changed.length ? `${theme.name}; ${changed.join(', ')} made readable on it` : theme.name))
    }
    case 'theme.refused': {
      const d = dataOf(e, e.type)
      return loud('warn', 'Theme not applied', d ? `${d.field}: ${d.reason}` : '')
    }
    case 'egress.allowed': {
      const d = dataOf(e, e.type)
      return quiet('Network allowed', d ? `${d.host}:${d.port}` : '')
    }
    case 'egress.denied': {
      const d = dataOf(e, e.type)
      return loud('warn', 'Network refused', d ? `${d.host}:${d.port}` : '')
    }
    case 'usage.metered': {
      const d = dataOf(e, e.type)
      return quiet('Model call', d ? `${d.model}, ${d.usage.tokens_in + d.usage.tokens_out} tokens` : '')
    }
    case 'repository.added': {
      const d = dataOf(e, e.type)
      return loud('ok', 'Added', d ? `${d.path}, ${count(d.files, 'file')}` : '')
    }
    case 'repository.pushed': {
      const d = dataOf(e, e.type)
      return loud('ok', 'Pushed', d ? `${d.path ?? 'the computer’s files'}, ${count((d.refs?.length ?? 0) + (d.more ?? 0), 'ref')}` : '')
    }
    case 'effect.ended': {
      const d = dataOf(e, e.type)
      if (d?.outcome === 'unknown') return loud('warn', 'It may have happened outside', 'Look there.')
      return quiet(`Outside: ${d?.outcome ?? ''}`, oneLine(d?.detail ?? ''))
    }
    case 'mcp.added':
      return loud('ok', 'MCP server added', dataOf(e, e.type)?.server)
    case 'mcp.removed':
      return loud('ok', 'MCP server removed', dataOf(e, e.type)?.server)
    case 'mcp.approved': {
      const d = dataOf(e, e.type)
      return loud('ok', 'Tool approved', d ? `${d.tool} of ${d.server}` : '')
    }
    case 'mcp.revoked': {
      const d = dataOf(e, e.type)
      return loud('ok', 'Tool no longer approved', d ? `${d.tool} of ${d.server}` : '')
    }
    case 'mcp.changed': {
      const d = dataOf(e, e.type)
      return loud('warn', 'Tool waits for you', d ? `${d.tool} of ${d.server}: ${d.reason}` : '')
    }
    case 'service.failed': {
      const d = dataOf(e, e.type)
      return quiet('A part failed', d ? `${d.service}: ${d.error}` : '', 'warn')
    }
    case 'service.restarted':
      return quiet('A part runs again', dataOf(e, e.type)?.service)
    case 'service.gave_up': {
      const d = dataOf(e, e.type)
      return loud('danger', 'A part is given up', d ? `${d.service}: ${d.error} Health in Trace has more.` : '')
    }
    case 'desktop.broke':
      return loud('danger', 'The desktop broke', dataOf(e, e.type)?.reason)
    case 'desktop.built':
      return quiet('Desktop built')
    case 'box.opened':
      return quiet('Box opened', dataOf(e, e.type)?.kind)
    case 'box.closed': {
      const d = dataOf(e, e.type)
      return quiet('Box closed', [d?.kind, d?.reason].filter(Boolean).join(', '))
    }
    case 'file.written':
      return quiet('File written', dataOf(e, e.type)?.path)
    case 'file.removed':
      return quiet('File removed', dataOf(e, e.type)?.path)
    case 'window.opened':
      return quiet('Window opened', dataOf(e, e.type)?.title)
    case 'computer.renamed':
      return quiet('Renamed', dataOf(e, e.type)?.name)
    case 'computer.created':
      return quiet('Computer created')
    case 'computer.woken':
      return quiet('Computer woke')
    case 'window.moved':
    case 'window.focused':
    case 'window.closed':
      return quiet(`Window ${e.type.slice('window.'.length)}`)
  }
  return null
}
