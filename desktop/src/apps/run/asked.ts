import type { Act } from '../../contract/contract'
import type { ApprovalView } from '../../stores/runs'

/** Where an act goes, with its port where that is not the usual one of the web. */
export function hostOf({ host, port }: Act): string {
  return port === 443 || port === 0 ? host : `${host}:${port}`
}

/** What waits for a person's word, in words. */
export function asksFor(act: Act): string {
  switch (act.kind) {
    case 'request':
      return `It wants to send a request (${act.method ?? 'POST'}) to ${hostOf(act)}.`
    case 'fetch':
      return `It wants to read from ${hostOf(act)}.`
    default:
      return `It wants to connect to ${hostOf(act)}.`
  }
}

/** Who denied it: a person, who gives no reason, or the system, which does. */
export function deniedWords({ reason }: ApprovalView): string {
  return reason || 'by you'
}
