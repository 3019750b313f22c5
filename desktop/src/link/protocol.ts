import type { Change, CheckpointKind, Event, Frame, Resolution, Role, RunStatus, Theme, Usage, Verified, WindowState } from '../contract/types'

// The messages of docs/desktop.md that aren't events.

export interface Provider {
  name: string
  model: string
  rehearsal: boolean
  network?: string
  budgetUSD?: number
}

export interface Session {
  cid: string
  name: string
  user: string
  nats: { url: string; jwt: string; seed: string; inbox: string; expires?: string }
  lastSequence: number
  readOnly: boolean
  provider: Provider
}

export interface RunSummary {
  run: string
  prompt: string
  status: RunStatus
  started: string
  ended?: string
  summary?: string
  verified?: Verified
  checkpoint?: string
  document?: string
  usage?: Usage
}

export interface Checkpoint {
  sequence: number
  time: string
  author: Role
  run?: string
  task?: string
  commit: string
  parent?: string
  kind: CheckpointKind
  message: string
  verified: Verified
  files: number
  /** The first of what could not be taken, "path: why", and how many files that is altogether. */
  skipped?: string[]
  left?: number
  /** The first of what .gitignore files keep out, and how many files and folders that is altogether. */
  ignored?: string[]
  outside?: number
}

/** What no checkpoint holds as it is: how many files could not be taken, how many files and folders are ignored, the first of both. */
export interface Unkept {
  files: number
  ignored: number
  paths: { path: string; reason: string; ignored?: boolean }[]
}

/** One entry of the workspace. */
export interface FileEntry {
  /** Its path. */
  id: string
  kind: 'file' | 'dir' | 'symlink' | 'other'
  size: number
  mode: string
  modified: string
  target?: string
  /** Why no checkpoint holds it, as in "is a socket". */
  unkept?: string
  /** In a folder: how many paths in it no checkpoint holds. */
  unkept_beneath?: number
}

export interface DocumentSummary {
  document: string
  title: string
  path: string
  revision: number
  time: string
}

/** A change to a document that waits for the user. The last four are of one that was asked for alone. */
export interface Proposal {
  id: string
  document: string
  /** The revision it was made from; 0: none. */
  base: number
  author: string
  role: Role
  run?: string
  task?: string
  time: string
  status: 'open' | Resolution
  /** The revision that diff is from. */
  on?: number
  /** In how many places it would take the place of what was written since its base. */
  overlaps?: number
  diff?: string
  truncated?: boolean
}

export interface WindowRecord {
  window: string
  app: string
  title: string
  frame: Frame
  state: WindowState
  z: number
  props?: Record<string, string>
}

export interface Snapshot {
  sequence: number
  computer: { cid: string; name: string; driver?: string; isolation?: string; notes?: string[] }
  theme: Theme | null
  windows: WindowRecord[]
  runs: RunSummary[]
  checkpoints: Checkpoint[]
  documents: DocumentSummary[]
}

export interface Diff {
  from: string
  to: string
  changes: Change[]
  diff: string
  truncated: boolean
}

export interface RestorePlan {
  to: string
  changes: Change[]
  kept?: Kept[]
  unkept?: Unkept
}

/** A path that a restore leaves as it is. */
export interface Kept {
  path: string
  reason: string
}

export interface Restored {
  to: string
  safety: string
  checkpoint: string
  sequence: number
  kept?: Kept[]
}

export interface OutputChunk {
  n: number
  stream: 'stdout' | 'stderr'
  text: string
}

/** Every service: its request and its answer. */
export interface Services {
  'log.read': [{ after: number; limit: number }, { events: Event[]; last: number }]
  'state.snapshot': [Record<string, never>, Snapshot]
  'run.get': [{ run: string; after: number; limit: number }, { events: Event[]; more: boolean }]
  'document.get': [
    { document: string; revision?: number },
    { document: string; title: string; path: string; revision: number; author: string; time: string; body: string },
  ]
  'proposal.list': [{ document: string }, { proposals: Proposal[] }]
  'proposal.get': [{ document: string; proposal: string }, Proposal]
  'proposal.accept': [{ document: string; proposal: string }, { id: string; resolution: Resolution; revision?: number; sequence: number }]
  'proposal.dismiss': [{ document: string; proposal: string }, { id: string; resolution: Resolution; revision?: number; sequence: number }]
  'checkpoint.list': [{ before?: number; limit: number }, { checkpoints: Checkpoint[]; more: boolean }]
  'checkpoint.create': [{ message: string }, { commit: string; sequence: number; created: boolean; unkept?: Unkept }]
  'checkpoint.diff': [{ from: string; to: string; path?: string }, Diff]
  'checkpoint.restore': [{ to: string; paths?: string[]; dry_run: boolean }, RestorePlan | Restored]
  'checkpoint.undo': [{ dry_run: boolean }, RestorePlan | Restored]
  'run.undo': [{ run: string; dry_run: boolean }, RestorePlan | Restored]
  'files.list': [{ path: string; after?: string }, { files: FileEntry[]; more: boolean }]
  'exec.run': [{ id: string; argv: string[]; cwd?: string }, { command: string; sequence: number }]
  'exec.output': [
    { command: string; after: number; wait?: boolean },
    { chunks: OutputChunk[]; running: boolean; exit_code?: number; unkept?: Unkept; truncated: boolean },
  ]
  'exec.stop': [{ command: string }, Record<string, never>]
}

export type Service = keyof Services

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

/** Decodes one answer; throws the HostError in it, or one saying that it is not JSON. */
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
