import type { Checkpoint as Shown, RunHead, Window } from './services'

// The messages of docs/desktop.md that aren't events, under the names that the shell uses.
// services.ts is generated.

export type {
  ComputerHealth, Diff, DocumentHead as DocumentSummary, File as FileEntry, Hunk, Kept, OutputChunk, Part, Proposal, Provider, Restored, Review, ReviewFile, Service, Services, Session, Snapshot, Span, Trace, UnderWay, Undone, Unkept,
} from './services'

/** A window as events and lists describe it. */
export type WindowRecord = Omit<Window, 'props'> & Partial<Pick<Window, 'props'>>

/** A checkpoint as events and lists describe it. */
export type Checkpoint = Omit<Shown, 'tree' | 'seq'>

/** A run as a list describes it, or as much of it as events have said. */
export type RunSummary = Pick<RunHead, 'run' | 'prompt' | 'status' | 'started'> & Partial<RunHead>

/** An error the host answered with, or that a request ended in. */
export class HostError extends Error {
  constructor(
    readonly code: string,
    message: string,
    readonly hint = '',
    readonly field = '',
  ) {
    super(message)
    this.name = 'HostError'
  }

  /** Whether the same request may succeed a little later. */
  get passing(): boolean {
    return this.code === 'unavailable' || this.code === 'timeout' || this.code === 'closed'
  }
}

/** Decodes one answer; throws the HostError that it holds, or one that says that it is not JSON. */
export function decodeAnswer(bytes: Uint8Array): unknown {
  let value: unknown
  try {
    value = JSON.parse(new TextDecoder().decode(bytes))
  } catch (cause) {
    throw new HostError('internal', 'The computer answered with something that is not JSON.', String(cause))
  }
  if (typeof value === 'object' && value !== null && 'error' in value && value.error) {
    const e = value.error as { code?: string; message?: string; hint?: string; field?: string }
    throw new HostError(e.code ?? 'internal', e.message ?? 'It failed.', e.hint, e.field)
  }
  return value
}
