// Generated from internal/rpc by go generate ./internal/rpc. Do not edit.

import type { ActorKind, Change, ChangeOp, CheckpointKind, Choice, EffectFound, EffectKind, Effort, Event, Frame, Resolution, ReviewComment, ReviewDecision, Route, RunStatus, TaskKind, Theme, Usage, Verification, VerificationStatus, WindowState } from '../contract/contract'

/** ComputerHealth is how one computer is. */
export interface ComputerHealth {
  id: string
  name: string
  state: ComputerState
  /** why it does not wake, or was put to sleep */
  trouble?: Trouble
  /** while it is awake */
  parts?: Part[]
  /** that have not ended; at most 100 */
  runs?: UnderWay[]
}

/** EventPage is one page of a query's answer, ascending. */
export interface EventPage {
  events: Event[]
  /** Next is the After of the next page, which exists already if More is set, and otherwise once something has happened. */
  next: number
  more: boolean
  /** sequence of the log's newest event */
  last: number
}

/** Snapshot is what the desktop's first paint needs. Sequence is the last event it reflects, no more, no less. Runs, Checkpoints and Documents are the newest 50, newest first. */
export interface Snapshot {
  sequence: number
  computer: ComputerHead
  /** null until a valid one exists */
  theme: Theme | null
  windows: Window[]
  runs: RunHead[]
  checkpoints: Checkpoint[]
  documents: DocumentHead[]
}

/** Started says that a command's start is in the log. */
export interface Started {
  command: string
  sequence: number
}

/** Output is what is kept of a command's output. ExitCode is given once it has ended and nothing more is to come; with it Unkept, what the command left behind that no checkpoint holds. */
export interface Output {
  chunks: OutputChunk[]
  running: boolean
  exit_code?: number
  unkept?: Unkept
  /** some was dropped that the asker has not had */
  truncated: boolean
}

/** Document is one revision of a living document. */
export interface Document {
  document: string
  title: string
  path: string
  revision: number
  author: string
  time: string
  /** Markdown; empty in lists */
  body: string
}

/** Revised is the revision that holds what was written. Merged says that it holds more: what others wrote since the base. */
export interface Revised {
  /** the document */
  id: string
  revision: number
  merged: boolean
  /** of the revision's text */
  sha256: string
  sequence: number
}

/** Proposal is a change to a document that was not made, because it touches what somebody else wrote since its base; a user accepts or dismisses it. On, Overlaps and Diff say what accepting it would do while it is open. They and Body are only given where a single proposal is requested. */
export interface Proposal {
  id: string
  document: string
  /** the revision it was made from; 0: none of them */
  base: number
  author: string
  role: ActorKind
  run?: string
  task?: string
  time: string
  /** of its event; pages go by it */
  sequence: number
  /** of Body */
  sha256: string
  status: ProposalStatus
  /** who resolved it */
  by?: string
  /** that holds it, once it is accepted */
  revision?: number
  /** the proposal that it made way for */
  successor?: string
  resolved?: string
  /** the revision that diff is from */
  on?: number
  /** in how many places it takes the place of what was written since its base */
  overlaps?: number
  /** unified, at most 512 KiB */
  diff?: string
  /** whether diff is cut */
  truncated?: boolean
  /** the whole document as proposed */
  body?: string
}

/** Resolved is how a proposal ended. */
export interface Resolved {
  /** the proposal */
  id: string
  resolution: Resolution
  /** that holds it, once it is accepted */
  revision?: number
  sequence: number
}

/** Effect is what a call of a task changed outside of the computer, or may have. */
export interface Effect {
  id: string
  kind: EffectKind
  run: string
  task: string
  attempt: number
  call: string
  /** a server and its tool, or a method and an address */
  target: string
  /** the arguments, or their beginning */
  what?: string
  /** the arguments, whole */
  args: string
  /** the idempotency key that the service was given */
  key?: string
  /** the earlier effect that it made once more */
  again?: string
  /** Approval is what a person allowed a request with. */
  approval?: string
  /** open, done, failed or unknown; a person's word counts */
  outcome: string
  /** what the service answered, or its beginning */
  detail?: string
  status?: number
  /** the answer, if detail has not all of it */
  answer?: string
  /** Found is what a person found of one that was unknown. */
  found?: EffectFound
  note?: string
  by?: string
  time: string
  /** of its intention; pages go by it */
  sequence: number
  /** Arguments and Answered are the texts, where one effect is shown. */
  arguments?: string
  answered?: string
}

/** Acted is the answer to an action: the sequence of its event, on disk, and for a prompt the run that it causes. */
export interface Acted {
  run?: string
  sequence: number
}

/** File is one entry of the workspace. */
export interface File {
  /** its path, relative to the workspace's root */
  id: string
  kind: FileKind
  size: number
  /** such as 0644 */
  mode: string
  modified: string
  /** of a symlink */
  target?: string
  /** names what a file holds, of one that was put; over HTTP its ETag */
  version?: string
  /** Unkept says why no checkpoint holds the entry, such as "is a socket"; Beneath counts such paths in a folder. */
  unkept?: string
  unkept_beneath?: number
}

/** Checkpoint is a commit of the workspace. */
export interface Checkpoint {
  /** the commit */
  commit: string
  parent?: string
  tree: string
  kind: CheckpointKind
  message: string
  verified: VerificationStatus
  files: number
  /** the first of what could not be taken, and why */
  skipped?: string[]
  /** how many files that is altogether */
  left?: number
  /** the first of what .gitignore files keep out */
  ignored?: string[]
  /** how many files and folders that is altogether */
  outside?: number
  /** last sequence projected before it */
  seq: number
  /** of its event; pages go by it */
  sequence: number
  time: string
  author: ActorKind
  /** who asked for it, where somebody did and it was written down */
  actor?: string
  /** the account */
  user?: string
  run?: string
  task?: string
}

/** Checkpointed answers a request for a checkpoint. Created is false when nothing had changed; ID is then the newest there is. */
export interface Checkpointed {
  commit: string
  sequence: number
  created: boolean
  unkept: Unkept
}

/** Diff is what differs. Diff is unified, at most 512 KiB, cut when Truncated. */
export interface Diff {
  from: string
  to: string
  changes: Change[]
  diff: string
  truncated: boolean
}

/** Restored is what a restore did, or with DryRun what it would change. */
export interface Restored {
  to: string
  dry_run: boolean
  changes: Change[]
  /** what stays as it is all the same */
  kept: Kept[]
  /** what no checkpoint has, and so stays as it is */
  unkept: Unkept
  /** checkpoint of everything as it was */
  safety?: string
  /** the new commit */
  checkpoint?: string
  sequence?: number
  /** whether changes is cut */
  truncated?: boolean
  /** of an undo */
  undone?: Undone
  /** which an undo has kept again or forgotten */
  facts?: Fact[]
}

/** Fact is something that a person told the computer to keep, in their words. */
export interface Fact {
  /** of the event that it was remembered with */
  id: string
  text: string
  /** the events that it came from; none: it was said by itself */
  from?: string[]
  /** whose Director noted it */
  run?: string
  actor: string
  /** on whose behalf */
  user?: string
  time: string
  /** false: it was forgotten */
  kept: boolean
  sequence: number
}

/** Trace is what took time in a run, as spans: the first is the run itself, and each other one's parent stands before it. Names and attributes follow OpenTelemetry's conventions for generative AI. */
export interface Trace {
  /** 32 hexadecimal digits */
  id: string
  run: string
  /** nothing is added to it any more */
  ended: boolean
  /** how many more spans there were than are kept */
  dropped?: number
  spans: Span[]
  /** More says that the answer to a desktop ends before the last span. Spans keep their places while the run goes on, so the rest is what comes after as many as these. */
  more?: boolean
}

/** Review is work of a task that waits until a person has looked at it, or was looked at. */
export interface Review {
  run: string
  prompt: string
  task: string
  goal: string
  kind: TaskKind
  attempt: number
  review: number
  /** what the work is compared with */
  base: string
  /** its tree; an answer names it */
  work: string
  paths: number
  /** why it is asked once more */
  reason?: string
  summary?: string
  verification?: Verification
  asked: string
  /** empty while it waits */
  decision?: ReviewDecision
  by?: string
  answered?: string
  only?: Choice[]
  comments?: ReviewComment[]
  /** only where a single one is requested */
  files?: ReviewFile[]
  /** files that are not listed; to take them, take all */
  more?: number
  sequence?: number
}

/** Session is what a desktop's page connects with. */
export interface Session {
  cid: string
  name: string
  user: string
  nats: SessionBus
  lastSequence: number
  readOnly: boolean
  provider: Provider
}

/** ComputerState is the state of a computer that the console's frame shows. */
export type ComputerState = 'awake' | 'working' | 'asleep' | 'broken' | 'waking' | 'damaged' | 'failed'

/** Trouble is why a computer does not wake, what of it is safe and what can be done about it. */
export interface Trouble {
  code: string
  reason: string
  hint?: string
  safe: string
  /** which file, and what is wrong with it */
  damage?: string[]
  actions: Repair[]
  /** Next is the time of the next automatic try to wake it, and Tries its number. */
  next?: string
  tries?: number
}

/** Part is something of a machine, or of a computer that is awake, that is kept running. */
export interface Part {
  name: string
  state: PartState
  since?: string
  restarts: number
  /** why it failed last, or what it waits for */
  reason?: string
  hint?: string
  /** its process, if it has one */
  pid?: number
}

/** UnderWay is a run that has not ended, and what it waits for. */
export interface UnderWay {
  id: string
  status: RunStatus
  /** person, model or slot: what it waits for */
  for?: string
  /** the question, or why the model can't be had */
  reason?: string
  since?: string
}

/** ComputerHead is what its own desktop shows of a computer. */
export interface ComputerHead {
  cid: string
  name: string
  created: string
  driver: string
  isolation: string
  notes: string[]
}

/** Window is a window of the desktop at the end of the log. */
export interface Window {
  window: string
  app: string
  title: string
  frame: Frame
  state: WindowState
  z: number
  props: Record<string, string>
}

/** RunHead is what a list shows of a run. */
export interface RunHead {
  run: string
  prompt: string
  status: RunStatus
  started: string
  ended?: string
  summary: string
  verified?: VerificationStatus
  checkpoint: string
  document: string
  usage: Usage
}

/** DocumentHead is what a list shows of a document. */
export interface DocumentHead {
  document: string
  title: string
  path: string
  revision: number
  time: string
}

/** OutputChunk is a piece of a command's output; N is dense per command. */
export interface OutputChunk {
  n: number
  stream: OutputStream
  text: string
}

/** Unkept is what no checkpoint holds as it is. */
export interface Unkept {
  /** how many could not be taken */
  files: number
  /** how many files and folders .gitignore files keep out */
  ignored: number
  /** the first of both */
  paths: UnkeptPath[]
}

/** ProposalStatus is what became of a proposal. */
export type ProposalStatus = 'open' | 'accepted' | 'dismissed' | 'superseded'

/** FileKind says what a directory entry is. */
export type FileKind = 'file' | 'dir' | 'symlink' | 'other'

/** Kept is a path that a restore leaves as it is: what is there is in no checkpoint, or was written in the very moment. */
export interface Kept {
  path: string
  reason: string
}

/** Undone is what an undo undoes: the last thing that was done. */
export interface Undone {
  what: UndoneKind
  /** of its event */
  sequence: number
  /** of the file or folder */
  path?: string
  /** of a run */
  run?: string
  /** of a run what was asked for, of a command its line, of a document its title, of a fact its words */
  title?: string
}

/** Span is something that took time. */
export interface Span {
  /** 16 hexadecimal digits */
  id: string
  /** of the run: the span of another program that asked for it */
  parent?: string
  name: string
  kind: SpanKind
  start: string
  /** while the run goes on: zero, or not yet the last word */
  end?: string
  /** a word for how it failed */
  error?: string
  /** From and To are the sequences of the events that it begins and ended with, in which its contents are. They are not exported. */
  from?: number
  /** 0 while no event has ended it */
  to?: number
  /** Attributes are texts, whole numbers, numbers and truths. None is from a prompt, a model's answer, an output or a file. */
  attributes?: Record<string, unknown>
}

/** ReviewFile is a file that the work changes. */
export interface ReviewFile {
  path: string
  op: ChangeOp
  /** Plain says why it has no hunks and can only be taken whole. */
  plain?: string
  hunks?: Hunk[]
}

/** SessionBus is where and as whom a desktop's page speaks on the bus. */
export interface SessionBus {
  url: string
  jwt: string
  seed: string
  inbox: string
  /** what is this session's alone */
  streams: string
  expires: string
}

/** Provider is what the next prompt would use. A frame has no choices: what shows them asks for its session. */
export interface Provider {
  name: string
  model: string
  rehearsal: boolean
  network?: string
  budgetUSD?: number
  choices: Choices
}

/** Repair is something that can be done about a computer that does not wake. */
export type Repair = 'retry' | 'recover' | 'without_tasks' | 'rewind' | 'export'

/** PartState says how a part of the machine or of a computer is. */
export type PartState = 'running' | 'restarting' | 'waiting' | 'failed'

/** OutputStream is where a command wrote something. */
export type OutputStream = 'stdout' | 'stderr'

/** UnkeptPath is a path that no checkpoint holds, and why. Reason goes on where the path ends: "is a socket". */
export interface UnkeptPath {
  path: string
  reason: string
  ignored?: boolean
}

/** UndoneKind says what was undone. */
export type UndoneKind = 'restore' | 'run' | 'command' | 'put' | 'removal' | 'move' | 'back' | 'add' | 'push' | 'revision' | 'remember' | 'forget'

/** SpanKind says where the work of a span was done. */
export type SpanKind = 'internal' | 'client'

/** Hunk is a place at which a file was changed, with the lines around it. */
export interface Hunk {
  id: string
  /** the first line before, from 1 */
  old: number
  old_lines: number
  /** the first line after */
  new: number
  new_lines: number
  /** as a unified diff has it */
  text: string
}

/** Choices are what the next prompt can choose, and what counts where it chooses nothing. */
export interface Choices {
  /** none while plans are played: they always have a Director */
  routes?: Route[]
  /** a prompt of one line and at most so many words goes to one Associate by itself */
  directWords?: number
  /** of the models, least first; none: they can't be told */
  efforts?: Effort[]
  /** how much the roles think by the owner; empty: as their models do */
  director?: Effort
  associate?: Effort
  /** aliases and names that the prompt's models can have, at most 60 */
  models?: string[]
  /** the owner wants everything looked at first, which no prompt gets around */
  review?: boolean
}

/** Every service: its request and its answer. */
export interface Services {
  /** How the parts of this computer are, and what its open runs wait for */
  'computer.health': [Record<string, never>, ComputerHealth]
  /** Events with sequence > after, ascending */
  'log.read': [{ after?: number; limit?: number }, EventPage]
  /** What the first paint needs, and nothing more */
  'state.snapshot': [Record<string, never>, Snapshot]
  /** Run your own command; answered as soon as its start is in the log */
  'exec.run': [{ id: string; argv: string[]; cwd?: string }, Started]
  /** What is kept of a command's output after a chunk */
  'exec.output': [{ command: string; after: number; wait?: boolean }, Output]
  /** Stop a command that a desktop started */
  'exec.stop': [{ command: string }, Record<string, never>]
  /** One revision of a living document */
  'document.get': [{ document: string; revision?: number }, Document]
  /** A document's revisions with their text, newest first */
  'document.revisions': [{ document: string; before?: number; limit?: number }, { revisions: Document[]; more: boolean }]
  /** Write a document's next revision, made from one that you read */
  'document.revise': [{ document: string; base: number; text: string }, Revised]
  /** Changes that wait for you, newest first, without their text */
  'proposal.list': [{ document: string; before?: number; limit?: number; all?: boolean }, { proposals: Proposal[]; more: boolean }]
  /** One proposed change, and what accepting it would do */
  'proposal.get': [{ document: string; proposal: string }, Proposal]
  /** Merge a proposed change into the document; where both changed the same lines, it wins */
  'proposal.accept': [{ document: string; proposal: string }, Resolved]
  /** Decide against a proposed change */
  'proposal.dismiss': [{ document: string; proposal: string }, Resolved]
  /** An effect outside with its arguments and what the service answered */
  'effect.show': [{ effect: string }, Effect]
  /** Submit a prompt that continues the effect's run, once that has ended, and asks to undo the effect outside */
  'effect.compensate': [{ effect: string; id?: string; words?: string }, Acted]
  /** A folder's entries by name, or the one entry of a file */
  'files.list': [{ path?: string; after?: string; limit?: number }, { files: File[]; more: boolean }]
  /** Checkpoints, newest first */
  'checkpoint.list': [{ before?: number; limit?: number }, { checkpoints: Checkpoint[]; more: boolean }]
  /** Commit the workspace if it changed */
  'checkpoint.create': [{ message?: string }, Checkpointed]
  /** What differs between two checkpoints */
  'checkpoint.diff': [{ from?: string; to?: string; path?: string }, Diff]
  /** Go back to a checkpoint, take back a run or the last thing, or have something back from the trash */
  'checkpoint.restore': [{ to?: string; run?: string; undo?: boolean; paths?: string[]; dry_run?: boolean }, Restored]
  /** Undo the last thing that was done, an undo too, and say which */
  'checkpoint.undo': [{ dry_run?: boolean; act?: number }, Restored]
  /** What the computer was told to keep, newest first */
  'memory.list': [{ before?: number; limit?: number; all?: boolean }, { facts: Fact[]; more: boolean }]
  /** Say what a person wants; on the bus at user.{cid}.action */
  'action': [{ type: string; id: string; subject?: string; run?: string; data: unknown }, Acted]
  /** A run's own events, ascending from sequence > after */
  'run.get': [{ run: string; after?: number; limit?: number }, EventPage]
  /** What took time in a run, as OpenTelemetry's spans: the run first, parents before their children */
  'run.trace': [{ run: string; after?: number }, Trace]
  /** Have a run's words sent to this session as they come, until its connection ends */
  'run.follow': [{ run: string }, Record<string, never>]
  /** Take back what a run changed, by a new commit */
  'run.undo': [{ run: string; dry_run?: boolean }, Restored]
  /** What a task made, hunk by hunk, that waits until a person has looked at it */
  'review.show': [{ run: string; task: string }, Review]
  /** Publish it or a part of it, send it back with comments, or discard it */
  'review.answer': [{ run: string; task: string; attempt: number; review: number; work: string; decision: ReviewDecision; only?: Choice[]; comments?: ReviewComment[] }, Acted]
}

export type Service = keyof Services
