// Generated from contract/ by go generate ./contract. Do not edit.

/** ActorKind says what sort of actor asks something of a computer or adds to its log: the last element of an event's source, and a token of its NATS subject. */
export type ActorKind = 'person' | 'app' | 'program' | 'director' | 'associate' | 'worker' | 'system'

/** ApprovalAnswer is what a person decided; the system itself only denies. */
export type ApprovalAnswer = 'once' | 'run' | 'deny'

/** ApprovalKind says what kind of act an approval is about. */
export type ApprovalKind = 'egress' | 'fetch' | 'request'

/** AttemptState is where an attempt at a task stands. What an attempt may do next is decided by it alone, while it goes on and after a crash. */
export type AttemptState = 'begun' | 'working' | 'finished' | 'merged' | 'verifying' | 'verified' | 'reviewing' | 'reviewed' | 'repairing' | 'publishing' | 'taking_back' | 'left' | 'ended'

/** BoxKind names what a box is for; it decides what the box may do. */
export type BoxKind = 'director' | 'associate' | 'task' | 'verify' | 'terminal' | 'desktop' | 'keeper' | 'scratch'

/** CallStatus is where an agent program's own tool call stands, as it says. */
export type CallStatus = 'begun' | 'done' | 'failed'

/** ChangeOp is what happened to a path. */
export type ChangeOp = 'added' | 'modified' | 'deleted' | 'mode'

/** CheckpointKind says why a checkpoint was made. */
export type CheckpointKind = 'initial' | 'auto' | 'manual' | 'before' | 'task' | 'push' | 'after' | 'safety' | 'restore'

/** EffectFound is what a person found where an effect may have happened. */
export type EffectFound = 'done' | 'not_done'

/** EffectKind says by what something outside is changed. */
export type EffectKind = 'mcp' | 'request'

/** EffectOutcome is what is known of an effect when nobody waits for its answer any more. */
export type EffectOutcome = 'done' | 'failed' | 'unknown'

/** Effort says how much a model thinks before it answers. */
export type Effort = 'none' | 'low' | 'medium' | 'high'

/** EgressProfile names a network policy. */
export type EgressProfile = 'none' | 'default' | 'custom'

/** FileOperation is how somebody made a file, or changed it. */
export type FileOperation = 'put' | 'moved' | 'back'

/** GitOp names an operation on the workspace's history. */
export type GitOp = 'checkpoint' | 'restore' | 'diff' | 'log' | 'status'

/** LockOf says whose lock file was installed from. */
export type LockOf = 'base' | 'change'

/** MessageRole says who speaks. */
export type MessageRole = 'user' | 'assistant'

/** OnFailure says what happens to a failed task's tree. Since every tree that was worked on is kept, both mean the same. */
export type OnFailure = 'rollback' | 'keep'

/** PlanStatus is where a plan item stands. */
export type PlanStatus = 'open' | 'active' | 'done' | 'failed' | 'dropped'

/** ProgramReport says what a ProgramReported is about. */
export type ProgramReport = 'said' | 'call' | 'plan'

/** RequestType is what a worker asks of whoever plans its run. */
export type RequestType = 'blocked' | 'approval' | 'conflict' | 'reprioritise'

/** Resolution is how a proposal ended. */
export type Resolution = 'accepted' | 'dismissed' | 'superseded'

/** ResultStatus is how a task ended. */
export type ResultStatus = 'ok' | 'failed' | 'needs_input' | 'cancelled' | 'refused'

/** ReviewDecision is what a person decides about work that they were shown before it is published. */
export type ReviewDecision = 'publish' | 'revise' | 'discard'

/** Route is the way of a prompt: to a Director, who plans it, or to one Associate at once. */
export type Route = 'plan' | 'direct'

/** RunCommand is what a user tells a run to do. */
export type RunCommand = 'pause' | 'resume' | 'cancel'

/** RunStatus is where a run stands. */
export type RunStatus = 'queued' | 'planning' | 'working' | 'waiting' | 'done' | 'failed' | 'cancelled'

/** StoodWhy says what stood still. */
export type StoodWhy = 'suspended' | 'stopped' | 'box'

/** StopReason says why a turn ended. */
export type StopReason = 'end' | 'tool_use' | 'length' | 'refusal' | 'truncated'

/** Support is whether an excerpt says what is claimed by it. */
export type Support = 'supported' | 'unsupported' | 'unknown'

/** TaskKind says how a task is executed. */
export type TaskKind = 'exec' | 'agent' | 'inspect' | 'research' | 'write' | 'git'

/** VerificationStatus is what a check found. */
export type VerificationStatus = 'pass' | 'fail' | 'unknown'

/** VerifyProfile says how much checking a task's outcome needs. */
export type VerifyProfile = 'none' | 'smoke' | 'standard' | 'strict'

/** WaitEnded says how a wait for a model ended. */
export type WaitEnded = 'answered' | 'gave_up' | 'left' | 'switched'

/** WindowState says how a window is shown. */
export type WindowState = 'normal' | 'minimised' | 'maximised'

/** Act is exactly what an approval allows, made of what the host knows. */
export interface Act {
  kind: ApprovalKind
  run: string
  host: string
  port: number
  /** of a fetch and a request: the whole address */
  url?: string
  /** Of a request: its method, all of it as it leaves, and the effect that it makes once more. */
  method?: string
  sends?: string
  again?: string
}

/** ApprovalAnswered is the one answer to an approval. Reason says why the system denied it; a person gives none. */
export interface ApprovalAnswered {
  approval: string
  digest: string
  answer: ApprovalAnswer
  reason?: string
}

/** ApprovalRequested asks a person for something that a computer was not granted. Everything but Claim is the host's own knowledge; Claim is what the agent says about it, as plain text. */
export interface ApprovalRequested {
  approval: string
  act: Act
  /** of Act; an answer names it */
  digest: string
  attempt: number
  claim?: string
  /** then it is denied */
  deadline: string
  /** Request shows a request. */
  request?: RequestShown
}

/** Artifact is a file kept as a blob. */
export interface Artifact {
  path: string
  ref: string
  size: number
}

/** AssociateResult is what the Associate answers to a DirectorTask, exactly once per attempt. Long values are blob references. */
export interface AssociateResult {
  version: number
  task: string
  attempt: number
  status: ResultStatus
  summary: string
  /** commit its work is compared, merged and checked against */
  base?: string
  /** checkpoint that holds its work; empty when nothing was published */
  head?: string
  changes?: Change[]
  /** unified, or empty and DiffRef set */
  diff?: string
  diff_ref?: string
  commands?: Command[]
  verification: Verification
  egress: EgressReport
  artifacts?: Artifact[]
  citations?: Citation[]
  questions?: Question[]
  /** what it asks of whoever plans the run */
  requests?: Request[]
  usage: Usage
  suggested_next?: string
  /** how often its loop was asked to repair what the checks found */
  repairs?: number
  /** what it wrote, if it was not published and differs from Base */
  kept?: KeptTree
  /** what a person decided about it before it was published */
  reviewed?: Reviewed
  /** siblings that had changed the same paths when its work was merged */
  overlaps?: Overlap[]
  /** Effects are what its calls changed outside, or may have: those whose outcome is unknown first, then the newest. */
  effects?: EffectOutside[]
}

/** AttemptMerge is what publishing an attempt's work would make of the live tree. */
export interface AttemptMerge {
  commit: string
  tree: string
}

/** AttemptMoved is one transition of an attempt, with what is needed to continue from there. It is only appended if the attempt's newest event is still the one that it was decided on, so that each transition happens once. */
export interface AttemptMoved {
  attempt: number
  state: AttemptState
  /** begun: commit that its work is compared, merged and checked against */
  base?: string
  /** begun: kept tree that its own is made from; empty: Base */
  from?: string
  /** Result is the attempt's result so far: finished has the loop's report and what the host observed, merged adds what changed, taking_back and left have what it will end with. */
  result?: AssociateResult
  /** merged; absent when nothing changed */
  merge?: AttemptMerge
  /** merged: which merge of the attempt it is, from 1 */
  try?: number
  /** verified: paths it depends on; empty: all */
  scope?: string[]
  /** verified */
  verification?: Verification
  /** taking_back: another attempt is made after this one */
  again?: boolean
  /** taking_back: its tree is kept to look at */
  keep?: boolean
  /** left: why it could not be taken back */
  reason?: string
}

/** BoxClosed says that a box and everything in it ended. Reason is empty for an orderly end, else what ended it: killed, crashed, disk, memory, timeout. */
export interface BoxClosed {
  box: string
  kind: BoxKind
  reason?: string
  detail?: string
  duration_ms: number
}

/** BoxOpened says that a box runs. */
export interface BoxOpened {
  box: string
  kind: BoxKind
}

/** Budget bounds a task or run. Zero means "no own limit", within what is left of the run's; for wall_s of a task of fixed steps and of a run it means the default. */
export interface Budget {
  wall_s: number
  tool_calls: number
  tokens: number
  cost_usd: number
}

/** Change is one path a task changed. Added and Removed count lines; both are -1 for binary content. PathBase64 is set when the path is not valid UTF-8; Path then shows it with replacement characters. */
export interface Change {
  path: string
  path_base64?: string
  op: ChangeOp
  added: number
  removed: number
}

/** Check is one command of a verification, run in a verify box of its own. Runner names the program whose report says how many tests ran; for an "exit code" nobody says it. */
export interface Check {
  name: string
  status: VerificationStatus
  command: Command
  runner?: string
  ran?: number
  skipped?: number
}

/** CheckpointCreated is a commit of the workspace, on disk before this event. */
export interface CheckpointCreated {
  commit: string
  parent?: string
  tree: string
  kind: CheckpointKind
  message: string
  /** last sequence projected and mirrored before it */
  seq: number
  verified: VerificationStatus
  /** paths changed against Parent */
  files: number
  /** the first of what could not be taken, and why */
  skipped?: string[]
  /** how many files that is altogether */
  left?: number
  /** the first of what .gitignore files keep out */
  ignored?: string[]
  /** how many files and folders that is altogether */
  outside?: number
}

/** CheckpointRestored says that the workspace, or paths of it, is as in To again. */
export interface CheckpointRestored {
  to: string
  safety: string
  checkpoint: string
  /** empty: everything */
  paths?: string[]
  undo?: boolean
}

/** Choice is a change that a person takes: all that was changed at a path and beneath it, or of a file only these hunks, by their ids. */
export interface Choice {
  path: string
  hunks?: string[]
}

/** Citation is a claim, and the words of a source that it rests on. */
export interface Citation {
  /** what a document names it by: [^label] */
  label: string
  source: string
  /** of the source */
  address: string
  /** of the source */
  title?: string
  claim: string
  /** word for word as in the source's text, but for white space */
  excerpt: string
  /** of the source's text, where the excerpt begins */
  line: number
  support: Support
  /** why the model judged so, or why nothing is known */
  reason?: string
  /** which one judged */
  model?: string
}

/** CitationRecorded is a claim with the words of a source that it rests on. The host found the excerpt in the source's text, and had a model judge whether it supports the claim, which sees nothing else of the run. */
export interface CitationRecorded {
  citation: Citation
}

/** Command is one command that ran in a box. Stdout and Stderr hold the head and tail when Truncated. */
export interface Command {
  argv?: string[]
  /** 128+n when killed by signal n, -1 when it did not start */
  exit_code: number
  duration_ms: number
  stdout: string
  stderr: string
  truncated: boolean
}

/** CommandFinished ends CommandStarted. ExitCode is 128+n after signal n. */
export interface CommandFinished {
  command: string
  exit_code: number
  duration_ms: number
  reason?: string
  /** Checkpoint is the newest checkpoint when it had ended, which contains what it did. Versions before this field made that checkpoint behind this event. */
  checkpoint?: string
  /** NoCheckpoint says why none could be made before it or after it, if so. */
  no_checkpoint?: string
}

/** CommandStarted is the user's own command in a terminal box. */
export interface CommandStarted {
  /** id */
  command: string
  argv: string[]
  cwd?: string
}

/** Compaction puts a text in the place of the turns before one. The text has the model's own summary and what the log knows. */
export interface Compaction {
  /** the index of the first turn that stays */
  keeps: number
  text: string
}

/** ComputerCreated starts a log. Of one that was forked, From and Checkpoint are the computer and the checkpoint of it whose files it began with. */
export interface ComputerCreated {
  name: string
  driver: string
  from?: string
  checkpoint?: string
}

/** ComputerRenamed gives the computer another name. */
export interface ComputerRenamed {
  name: string
}

/** ComputerWoken says that a control plane owns the log from here on, as event.epoch tells. Driver and Isolation say what its boxes are made of. */
export interface ComputerWoken {
  version: string
  driver: string
  isolation: string
  /** what isolation this host could not provide */
  notes?: string[]
}

/** DamageFound says what of a computer's data is damaged, and what it was restored from, "" when nothing else holds it. */
export interface DamageFound {
  part: string
  what: string
  healed?: string
}

/** DesktopBroke says that the page is blank or throwing. */
export interface DesktopBroke {
  reason: string
  detail?: string
}

/** DesktopBuilt says that a build of choiros/ is kept and can be served. */
export interface DesktopBuilt {
  commit: string
  /** git tree of choiros/ */
  tree: string
  files: number
  bytes: number
  duration_ms: number
}

/** DirectorTask is what the Director asks of the Associate. Unknown fields are refused. Run and task ids derive from the event that caused them. */
export interface DirectorTask {
  version: number
  id: string
  run: string
  /** from 1 */
  attempt: number
  kind: TaskKind
  goal: string
  acceptance?: string[]
  /** checkpoint or kept tree to start from; empty means the newest checkpoint */
  base?: string
  steps?: Step[]
  inputs?: Input[]
  /** empty allows none */
  tools?: string[]
  /** the agent program, by its name in the owner's configuration, that does the task in place of our own loop; kind agent only */
  program?: string
  /** what a task of kind write writes: artifacts/….md */
  document?: string
  egress: EgressSpec
  verify: VerifySpec
  budget: Budget
  on_failure: OnFailure
  want: Want
}

/** DocumentProposed is a change to a living document that was not made: it touches text that somebody else wrote since its base. It holds the whole text as its author wanted it; a user accepts or dismisses it. */
export interface DocumentProposed {
  proposal: string
  document: string
  /** the revision it was made from; 0: none of them */
  base: number
  author: string
  sha256: string
  /** Markdown */
  body: string
}

/** DocumentRevised is one revision of a living document, whole. Revision 1 creates it. */
export interface DocumentRevised {
  document: string
  title: string
  /** where it is mirrored, under artifacts/ */
  path: string
  revision: number
  /** the revision it was made from */
  base: number
  author: string
  sha256: string
  /** Markdown */
  body: string
}

/** EffectEnded says what an effect came to. There is one of each effect: what nobody knows ends as unknown, and stays so. */
export interface EffectEnded {
  effect: string
  outcome: EffectOutcome
  /** what the service answered, or why there is no answer */
  detail?: string
  /** of an answer of HTTP */
  status?: number
  /** what the service answered, when Detail has only its beginning */
  answer?: string
}

/** EffectIntended says that a call is about to change something outside. It is on disk before anything leaves, so that nothing happens outside of which the log does not know. */
export interface EffectIntended {
  effect: string
  kind: EffectKind
  /** Target is a server and its tool, or a method and an address without its query. */
  target: string
  /** What shows the arguments, or the beginning of them. */
  what?: string
  /** Digest is of the arguments in canonical form, without Key; Args holds them as they are sent. */
  digest: string
  args: string
  /** Key is the idempotency key that the service is given, if it takes one. */
  key?: string
  call: string
  attempt: number
  /** Again is the earlier effect that this one makes once more. */
  again?: string
  /** Approval is what a person allowed this one request with. Of each there is at most one effect. */
  approval?: string
}

/** EffectOutside is an effect as the result of an attempt names it. */
export interface EffectOutside {
  effect: string
  kind: EffectKind
  target: string
  what?: string
  outcome: EffectOutcome
  key?: string
}

/** EffectResolved is a person's word on an effect whose outcome is unknown. */
export interface EffectResolved {
  effect: string
  found: EffectFound
  note?: string
}

/** EgressDecided is one decision of the network policy (types egress.allowed and egress.denied). */
export interface EgressDecided {
  box: string
  kind: BoxKind
  host: string
  port: number
  address?: string
  rule?: string
  reason?: string
}

/** EgressMetered is what has passed a tunnel so far, in bytes as its box sees it. The event is appended when the tunnel ends and, if it is open for long, in between as well; the newest one counts. */
export interface EgressMetered {
  tunnel: string
  box: string
  kind: BoxKind
  host: string
  port: number
  sent: number
  received: number
  wall_ms: number
  ended: boolean
}

/** EgressReport lists host:port pairs a task reached or was refused. */
export interface EgressReport {
  allowed?: string[]
  denied?: string[]
}

/** EgressSpec is the network access that a task asks for. The host decides what it gets: what exceeds the computer's grant waits for a person. */
export interface EgressSpec {
  profile: EgressProfile
  /** host:port or *.suffix:port; custom only */
  allow?: string[]
  /** shown to that person as a claim; custom only */
  reason?: string
}

/** Event is one CloudEvents 1.0 event in its JSON form, the unit of a computer's log. Sequence is dense per computer: 1, 2, 3, … */
export interface Event {
  specversion: '1.0'
  id: string
  source: string
  type: string
  subject?: string
  time: string
  datacontenttype?: string
  data?: unknown
  /** set instead of Data when the data exceed MaxInlineData */
  dataref?: string
  sequence: number
  /** ownership generation of the log */
  epoch: number
  /** hash of the event before it as stored; empty in events from before events were chained */
  prev?: string
  computer: string
  /** who acted; empty in events from before actors existed */
  actor?: string
  /** the account on whose behalf */
  user?: string
  run?: string
  task?: string
  /** id of the event that caused this one */
  causation?: string
  /** id shared by all that follows from one intention */
  correlation?: string
  /** W3C trace context */
  traceparent?: string
}

/** Fact is a fact as loops are told of it. */
export interface Fact {
  id: string
  text: string
}

/** FileRemoved is a file that was removed; Trash is the entry of the trash that has it. */
export interface FileRemoved {
  path: string
  /** set when it is not UTF-8 */
  path_base64?: string
  trash?: string
}

/** FileWritten is a file that was made or changed, coalesced per path. */
export interface FileWritten {
  path: string
  /** set when it is not UTF-8 */
  path_base64?: string
  size: number
  sha256?: string
  /** How to undo it, which events of earlier versions don't say: how the file came to be, which entry of the trash has what it replaced, if anything, and where it was. */
  deed?: FileOperation
  trash?: string
  from?: string
}

/** FoundPage is one result of a search. */
export interface FoundPage {
  url: string
  title?: string
}

/** Frame is a window's place in CSS pixels. */
export interface Frame {
  x: number
  y: number
  w: number
  h: number
}

/** GitStep is one operation on the workspace's history, done by the keeper. */
export interface GitStep {
  op: GitOp
  /** checkpoint */
  message?: string
  /** restore, diff: a commit */
  ref?: string
  /** restore, diff: only this path */
  path?: string
}

/** Image is a picture that a model looks at. It is kept as a blob; the gateway reads it. */
export interface Image {
  /** image/png, image/jpeg, image/gif or image/webp */
  media: string
  ref: string
  bytes?: number
}

/** Input names something a task may read; exactly one field is set. */
export interface Input {
  document?: string
  file?: string
  blob?: string
}

/** Installation is the installation, in a box of its own, of the packages that a lock file names and checks need. Of says whose lock file it is: the base's, or the change's. Hosts are where the packages came from, empty when they were kept from an earlier check. Problem says why they could not be installed. */
export interface Installation {
  tool: string
  lock: string
  of: LockOf
  /** names the lock's content and the tool */
  key?: string
  packages?: number
  bytes?: number
  hosts?: string[]
  kept?: boolean
  /** what differs from what the packages ask for */
  note?: string
  problem?: string
}

/** KeptTree is the tree of an attempt that was not published. A later task can name Commit as its base to go on from it; that task's work is merged with Base as the common ancestor, and checked with the tests and tools of Base, as the attempt's would have been. */
export interface KeptTree {
  commit: string
  /** the checkpoint that the work began from */
  base: string
  /** how many differ from Base */
  paths: number
}

/** LogRecovered says what a computer was recovered from after damage. The damaged data are kept under Aside in the data directory. */
export interface LogRecovered {
  /** events before this one */
  kept: number
  /** of these, only the state had them */
  from_state: number
  /** of these, from before events were chained */
  unproven: number
  /** events that were acknowledged and could not be recovered */
  lost: number
  /** checkpoints before this event may be gone */
  history?: boolean
  /** the commit at which the history stands; it was made by events that could not be recovered */
  continues?: string
  /** what is missing, each with why it matters */
  gone?: string[]
  aside?: string
}

/** MCPAdded says that a person added a server of the Model Context Protocol: a program, which runs in a box of its own, or the address of one that runs elsewhere. Only a person adds one, and nothing in a tree can. */
export interface MCPAdded {
  server: string
  /** Command is the program and its arguments; URL the address. One of them is set. */
  command?: string[]
  url?: string
  /** Egress lists the hosts that the box may reach, as host:port or *.suffix:port. A server with an address is reached there and nowhere else. */
  egress?: string[]
  /** Secrets lists what the program finds in its environment. */
  secrets?: MCPSecret[]
  /** Bearer names the secret that requests to the address carry. */
  bearer?: string
  /** Files says that the box sees the computer's files, read-only. */
  files?: boolean
}

/** MCPApproved says that a person approved a tool of a server as it was then. */
export interface MCPApproved {
  server: string
  tool: string
  /** Definition is what the server said of the tool, and Digest is of that. */
  definition: unknown
  digest: string
  /** Reads says that the person believes the server that the tool only reads. */
  reads?: boolean
}

/** MCPChanged says that a tool was found to be other than what was approved, or gone, so that it is not used until a person approves it again. Digest is of what it is now. */
export interface MCPChanged {
  server: string
  tool: string
  digest?: string
  reason: string
}

/** MCPRemoved says that a person removed a server, with all that was approved of it. */
export interface MCPRemoved {
  server: string
}

/** MCPRevoked says that a person took an approval back. */
export interface MCPRevoked {
  server: string
  tool: string
}

/** MCPSecret names a secret of the vault, and the variable of the environment that it is given in. */
export interface MCPSecret {
  variable: string
  secret: string
}

/** MemoryForgotten says that facts hold no longer: one, and what followed from it. */
export interface MemoryForgotten {
  facts: string[]
}

/** MemoryRemembered is a fact that a person told the computer to keep, in their own words. The event's id names the fact. */
export interface MemoryRemembered {
  text: string
  /** From are the events that it came from: where the person said it, or the facts that it follows from. None: it was said here. */
  from?: string[]
}

/** MemoryRestored says that facts which were forgotten are kept again. */
export interface MemoryRestored {
  facts: string[]
}

/** Message is one message of a conversation with a model. */
export interface Message {
  role: MessageRole
  parts?: Part[]
}

/** ModelResumed says that a loop does not wait for its model any more. */
export interface ModelResumed {
  role: string
  /** of the model that answers, or that was waited for */
  provider: string
  model: string
  /** the model (provider/model) in whose place another answers */
  instead?: string
  outcome: WaitEnded
  waited_ms: number
}

/** ModelSwitched is the user's choice of another model for a run that goes on. */
export interface ModelSwitched {
  /** provider/model or an alias; the host stores provider/model */
  model: string
}

/** ModelWaiting says that a loop waits for its model, which can't be had now, and why. It is said once, and again when the reason or the model changes; ModelResumed ends it. */
export interface ModelWaiting {
  role: string
  provider: string
  model: string
  /** TurnError's */
  code: string
  message: string
  /** of the first failed try */
  since: string
  /** when it is tried again; that may also be sooner */
  next: string
  /** when waiting is given up */
  until: string
  /** how many tries have failed */
  try: number
}

/** Outdated says that others changed live files that the loop of an attempt works with, of which it is told before its next request. */
export interface Outdated {
  attempt: number
  files: OutdatedPath[]
  /** the attempt is told no more of them: there were too many */
  last?: boolean
}

/** OutdatedPath is the newest change of a live file when it was noticed. By is empty for what writes to the tree itself, such as a terminal; Seq and Time are of the event that says so: file.written, file.removed, document.revised or checkpoint.created. */
export interface OutdatedPath {
  path: string
  by?: ActorKind
  removed?: boolean
  seq: number
  time: string
}

/** Output is a structured output: the answer's text is JSON that Schema, a JSON Schema object, describes. */
export interface Output {
  name: string
  schema: unknown
}

/** Overlap names a task of the same delegation that changed the same paths. Siblings are merged in the order in which they end, each with what the ones before it published. */
export interface Overlap {
  task: string
  paths: string[]
  /** paths that are not listed */
  more?: number
}

/** PageFetched is a page that was read for a task, as text in a blob. URL is the address that was asked for, From the one that answered, which differs where the server named another place. */
export interface PageFetched {
  url: string
  from: string
  title?: string
  /** the media type that the server named */
  media: string
  status: number
  /** of the answer's body, decompressed */
  bytes: number
  text: string
  /** there was more than is kept */
  truncated?: boolean
}

/** Part is a piece of a message; exactly one field is set. */
export interface Part {
  text?: string
  /** assistant only */
  call?: ToolCall
  /** user only */
  return?: ToolReturn
  /** assistant only */
  reasoning?: Reasoning
  /** user only */
  image?: Image
}

/** PatchStep applies a unified diff. */
export interface PatchStep {
  diff: string
}

/** PlanItem is one line of a plan. */
export interface PlanItem {
  text: string
  status: PlanStatus
  task?: string
}

/** ProgramReported is what an agent program in a task's box says of its work. Nothing of it was seen by the host: it is shown, and decides nothing. */
export interface ProgramReported {
  attempt: number
  program: string
  what: ProgramReport
  text: string
  /** the program's id of the call */
  call?: string
  status?: CallStatus
  /** Calls counts the tool calls that the program has told of in this attempt so far. */
  calls: number
}

/** PromptSubmitted is a person's intention. Its event id is the run's cause. Continues names a run of the same computer that had ended, of which the new run's Director is told what it did; nothing that was granted to that run is granted to this one. Route is the person's wish whether it is planned first. */
export interface PromptSubmitted {
  text: string
  model?: string
  budget?: Budget
  continues?: string
  route?: Route
  /** Effort is how much the run's models think before they answer; empty: what the owner says. */
  effort?: Effort
  /** Summarise is an address of the web or a path in the workspace, of which a document with citations is wanted. */
  summarise?: string
  /** Review says that a person looks at what its tasks made before it is published. */
  review?: boolean
}

/** ProposalResolved ends a proposal. Revision is the one that holds an accepted proposal's text; Successor is the proposal that replaced a superseded one. */
export interface ProposalResolved {
  proposal: string
  document: string
  resolution: Resolution
  by: string
  revision?: number
  successor?: string
}

/** PublishFinished says that every path of a publish is in the live tree. */
export interface PublishFinished {
  publish: string
  commit: string
  /** paths kept as the user had them */
  conflicts?: string[]
  inverted?: boolean
}

/** PublishStarted says that the merged tree of a task is committed under refs/choir/publish/ and will be applied; recovery rolls it forward. */
export interface PublishStarted {
  /** id */
  publish: string
  commit: string
  base: string
  /** once per tool call, inverted if the task fails */
  live?: boolean
  paths: number
}

/** PushedRef is a ref of a repository before and after: commits of its own, empty where there was none. */
export interface PushedRef {
  name: string
  old?: string
  new?: string
}

/** Question is something only the user can decide. Default is what a missed deadline means. */
export interface Question {
  id: string
  text: string
  choices?: string[]
  default?: string
  /** RFC 3339 */
  deadline?: string
}

/** QuestionAnswered is the user's answer, or the default after the deadline. */
export interface QuestionAnswered {
  question: string
  answer: string
  default?: boolean
}

/** QuestionAsked is the Director's question; the run waits. */
export interface QuestionAsked {
  question: Question
}

/** Reasoning is what a model thought before it answered. Services want it back as they gave it while its turn's calls are answered: Opaque is a signature or an encrypted text, which only the service of Provider understands. Others are not shown it. */
export interface Reasoning {
  provider: string
  text?: string
  id?: string
  opaque?: string
  /** Hidden says that Opaque stands in place of the text, and is no signature of it. */
  hidden?: boolean
}

/** RepairRequested sends an attempt whose checks failed, or of which a person wants something changed, back to its loop, which is asked again behind the turns that it had. It is a transition like AttemptMoved. */
export interface RepairRequested {
  attempt: number
  /** which repair of what its checks found, from 1; with Review, how many there were */
  repair: number
  /** what the loop is told: the checks that failed, with their output, or what the person says */
  failed: string
  /** the review whose comments it is told; 0: its checks failed */
  review?: number
}

/** RepositoryAdded says that choir add brought something into workspace/. */
export interface RepositoryAdded {
  /** in the workspace */
  path: string
  /** what was added, without credentials */
  origin: string
  /** URL to fetch from, recorded on the host */
  remote?: string
  /** its HEAD */
  commit?: string
  /** how many files came */
  files: number
  /** how large they are together */
  bytes: number
  /** how many were left out, such as sockets */
  skipped?: number
}

/** RepositoryPushed says that somebody pushed into a repository of the workspace; a publish made Commit, which holds what was pushed. */
export interface RepositoryPushed {
  /** in the workspace; empty: the computer's own files */
  path?: string
  /** whose checkpoint it is */
  publish: string
  /** a commit of the workspace, not of the repository */
  commit: string
  /** the first of them */
  refs?: PushedRef[]
  /** how many more there were */
  more?: number
}

/** Request is one thing that a worker asks. Nothing follows from it by itself: whoever plans decides. */
export interface Request {
  type: RequestType
  text: string
}

/** RequestShown is what a person is shown of a request that waits for them, besides its method and address. Sends of the act has all of it. */
export interface RequestShown {
  headers?: string[]
  /** its beginning; what can't be seen is spelled out */
  body?: string
  /** bytes of the whole body */
  size: number
  /** there is more than Body shows */
  cut?: boolean
  /** of the whole body, in hex */
  sha256?: string
  /** Before is what is known of the effect that it makes once more. */
  before?: EffectOutcome
}

/** ReviewAnswered is a person's decision about the work that they were shown. It is a transition like AttemptMoved. */
export interface ReviewAnswered {
  attempt: number
  review: number
  work: string
  decision: ReviewDecision
  /** publish: what is taken; empty: all of it */
  only?: Choice[]
  comments?: ReviewComment[]
}

/** ReviewComment is what a person says of a line or paragraph of the work, of a file as a whole where Line is 0, and of all of it where Path is empty. Quote is the line as they were shown it. */
export interface ReviewComment {
  path?: string
  /** of the file as the work has it, from 1 */
  line?: number
  quote?: string
  text: string
}

/** ReviewRequested says that an attempt's work has passed its checks and waits until a person has looked at it. It is a transition like AttemptMoved. */
export interface ReviewRequested {
  attempt: number
  /** from 1, of the attempt */
  review: number
  /** what the work is compared with */
  base: string
  /** the attempt's own tree, which is looked at and, if all of it is taken, published */
  work: string
  /** how many were changed */
  paths: number
  /** Reason is why it is asked once more although it was answered: what was chosen of it failed its checks. */
  reason?: string
}

/** Reviewed is what became of a review, in a result. */
export interface Reviewed {
  decision: ReviewDecision
  /** who decided, as an event's actor: person:u-1, app:desktop */
  by: string
  /** on whose behalf */
  user?: string
  at: string
  work: string
  /** what was taken; empty: all of it */
  only?: Choice[]
  comments?: ReviewComment[]
}

/** RunCommanded is the user's pause, resume or cancel. */
export interface RunCommanded {
  command: RunCommand
}

/** RunMoved says that a run's status changed. */
export interface RunMoved {
  status: RunStatus
  reason?: string
}

/** RunPlanned is the Director's plan, whole, each time it changes. */
export interface RunPlanned {
  objective: string
  plan?: PlanItem[]
}

/** RunReported ends a run. */
export interface RunReported {
  status: RunStatus
  summary: string
  document?: string
  checkpoint?: string
  verified: VerificationStatus
  usage: Usage
  error?: string
}

/** RunStarted opens a run and its living document. Direct is why the prompt goes to one Associate at once, without a Director's plan; it is empty if a Director plans it. It is decided once. Facts are what the computer kept then, oldest first, which all loops of the run are told word for word in each request. */
export interface RunStarted {
  document: string
  provider: string
  model: string
  direct?: string
  facts?: Fact[]
  /** Review says that a person looks at what its tasks made before it is published: the prompt, or the owner for this computer, wants it so. */
  review?: boolean
}

/** RunSteered is what the user said to a run while it goes on. */
export interface RunSteered {
  text: string
}

/** RunStep runs a command in the task box. */
export interface RunStep {
  argv: string[]
  /** relative to the workspace's root */
  cwd?: string
}

/** RunStood says that a run stood still for a while and goes on: the machine, choir or one of its boxes did not run meanwhile. That time does not count against the run's budget, unless it was a box. */
export interface RunStood {
  for_ms: number
  why: StoodWhy
}

/** SearchAnswered is what a search service answered: the addresses that it named, which the run's tasks may read without asking a person. */
export interface SearchAnswered {
  provider: string
  query: string
  results?: FoundPage[]
}

/** SecretRemoved says that a secret is gone. */
export interface SecretRemoved {
  name: string
}

/** SecretSet says that a secret was stored; its value is nowhere in the log. */
export interface SecretSet {
  name: string
}

/** ServiceFailed says that one of a computer's own services, such as the one that keeps its state up to the log, failed or panicked. Of failures in a row only the first is an event. */
export interface ServiceFailed {
  service: string
  error: string
  /** failures since it last ran steadily */
  in_row: number
  /** it is started again; false: it was to run once */
  again: boolean
}

/** ServiceGaveUp says that a service failed too often within a time and is not started again by itself. */
export interface ServiceGaveUp {
  service: string
  /** of the last failure */
  error: string
  /** within that time */
  failures: number
  /** the computer can't do without it and is put to sleep */
  sleeps: boolean
}

/** ServiceRestarted says that a service that failed has run steadily since. */
export interface ServiceRestarted {
  service: string
  /** in a row, before it did */
  failures: number
}

/** SourceAdded is something that a task read and quotes, as it was then. Its id is the event's subject and follows from all that is said here, so the same page with another text is another source. */
export interface SourceAdded {
  /** https://…, or a path in the workspace */
  address: string
  title?: string
  media?: string
  text: string
  /** of the text */
  bytes: number
  /** there was more than is kept */
  truncated?: boolean
  /** when the text was read, RFC 3339 */
  read: string
  /** of a path: the checkpoint that has it so */
  commit?: string
}

/** Step is one deterministic step; exactly one field is set. */
export interface Step {
  run?: RunStep
  write?: WriteStep
  patch?: PatchStep
  git?: GitStep
}

/** TaskFinished carries the one result of an attempt. */
export interface TaskFinished {
  result: AssociateResult
}

/** TaskRequested carries the whole task. */
export interface TaskRequested {
  task: DirectorTask
}

/** TaskStarted says that a box works on an attempt. */
export interface TaskStarted {
  attempt: number
  box: string
  base: string
  /** hash of the fencing token */
  fence: string
}

/** Theme is the content of artifacts/system/theme.json: data, never code. Every colour becomes a CSS variable --choir-NAME. */
export interface Theme {
  name: string
  /** dark or light */
  scheme: 'dark' | 'light'
  /** keys of ThemeColors, values #rgb, #rrggbb or #rrggbbaa */
  colors: Record<ThemeColor, string>
  /** px, 0 to 24 */
  radius: number
}

/** ThemeChanged delivers the theme file; Theme is the file's JSON. */
export interface ThemeChanged {
  theme: Theme
  sha256: string
}

/** ThemeRefused says why a theme file was not applied; the last good one stays. */
export interface ThemeRefused {
  field: string
  reason: string
}

/** ToolCall is a model's request to use a tool. Args is what the model wrote; it is a JSON object only once ValidateArgs has said so. */
export interface ToolCall {
  id: string
  name: string
  args: unknown
  /** Cut says that the answer was cut off inside the arguments, of which Arrived bytes came; such a call must not be run. */
  cut?: boolean
  arrived?: number
}

/** ToolCalled is appended before a tool runs. */
export interface ToolCalled {
  call: string
  name: string
  args: unknown
  read_only: boolean
  attempt: number
}

/** ToolReturn answers the ToolCall with the same ID. */
export interface ToolReturn {
  id: string
  content: string
  is_error?: boolean
  images?: Image[]
}

/** ToolReturned is appended after a tool ran; the outcome of a call without it is unknown. Command is the command that it ran, shortened, if it ran one: a result lists it as evidence. */
export interface ToolReturned {
  call: string
  name: string
  ok: boolean
  output: string
  output_ref?: string
  duration_ms: number
  attempt: number
  command?: Command
  /** what it showed beside its output */
  images?: Image[]
}

/** ToolSpec describes a tool to a model. Schema is a JSON Schema object. */
export interface ToolSpec {
  name: string
  description: string
  schema: unknown
}

/** Turn is a model's finished answer. */
export interface Turn {
  provider: string
  model: string
  message: Message
  stop: StopReason
  usage: Usage
}

/** TurnChunk is one line of the NDJSON answer to POST /model/turns: text as it arrives, then exactly one of Turn or Error. */
export interface TurnChunk {
  delta?: string
  turn?: Turn
  error?: TurnError
}

/** TurnError is why there is no turn. Retriable says whether the same request may succeed later. */
export interface TurnError {
  /** budget, rate_limited, unavailable, timeout, invalid, malformed, too_large, overflow, no_model */
  code: string
  message: string
  retriable?: boolean
}

/** TurnRecorded is one model turn of an agent task, or of the Director when the event names no task. It is recorded again, with Returns, when its calls have returned; the newer one of an Index counts. It is kept so that the loop can resume. Data beyond the inline limit travel as a blob. */
export interface TurnRecorded {
  attempt: number
  index: number
  message: Message
  returns?: Message[]
  usage: Usage
  /** Stop says why the answer ended. Versions before this field left it out. */
  stop?: StopReason
  /** Told is what the request that this turn answers said last, behind what was said before; of turn 0, its first message. With it, a loop that resumes asks as the one before did. */
  told?: string
  /** Compacted says that this turn is a summary of earlier ones. */
  compacted?: Compaction
}

/** TurnRequest asks the gateway for one model turn. A loop in a box posts it to /model/turns over its tether; the gateway adds the key, picks the provider and enforces the budget. */
export interface TurnRequest {
  /** provider/model or an alias; empty means the role's default */
  model?: string
  system?: string
  messages: Message[]
  tools?: ToolSpec[]
  /** 0: what the catalogue says of the model */
  max_tokens?: number
  /** how much to think first; ignored by models that can't be told */
  effort?: Effort
  /** the form that the answer's text has to have */
  output?: Output
}

/** Usage is what something consumed. */
export interface Usage {
  wall_ms: number
  tool_calls: number
  tokens_in: number
  tokens_out: number
  cost_usd: number
  /** TokensCached are those of TokensIn that the service had kept from an earlier request. */
  tokens_cached?: number
  /** TokensRepeated are those of TokensIn with which the same loop's request before began, too, so that a service can keep them: that share of the request's bytes. */
  tokens_repeated?: number
}

/** UsageMetered is what one model call consumed, estimated when Estimated. */
export interface UsageMetered {
  call: string
  role: string
  provider: string
  model: string
  usage: Usage
  /** ok, or the error's code */
  outcome: string
  retries: number
  estimated?: boolean
  /** USD per million tokens */
  price_in?: number
  /** USD per million tokens */
  price_out?: number
}

/** Verification is the outcome of checking a task's tree. Tree is the git tree that was checked. It is the published tree, or differs from it only outside of the projects that were checked; otherwise Status is unknown. Tests is how many tests ran, with the base's tools and configuration of the checks; Said names what the task changed of those. */
export interface Verification {
  profile: VerifyProfile
  status: VerificationStatus
  tree?: string
  checks?: Check[]
  tests?: number
  said?: string[]
  /** why it is unknown */
  reason?: string
  /** NoCheck says that it is unknown for no other reason than that nothing checks what changed. */
  no_check?: boolean
  /** Installed is what lock files name and had to be installed for the checks. */
  installed?: Installation[]
}

/** VerificationFinished is the outcome of checking a tree. */
export interface VerificationFinished {
  attempt: number
  verification: Verification
}

/** VerifySpec is how a task's outcome is checked; Commands are run besides what the profile finds. */
export interface VerifySpec {
  profile: VerifyProfile
  commands?: string[][]
}

/** Want says what the result should carry. */
export interface Want {
  diff: boolean
  logs: boolean
  /** paths to keep as blobs */
  artifacts?: string[]
}

/** WindowClosed removes a window. */
export interface WindowClosed {
  window: string
}

/** WindowFocused raises a window. */
export interface WindowFocused {
  window: string
  z: number
}

/** WindowMoved changes a window's frame or state. */
export interface WindowMoved {
  window: string
  frame: Frame
  state: WindowState
  z: number
}

/** WindowOpened puts a window on the desktop. */
export interface WindowOpened {
  window: string
  app: string
  title: string
  frame: Frame
  state: WindowState
  props?: Record<string, string>
}

/** WriteStep writes a whole file. */
export interface WriteStep {
  path: string
  content: string
  executable?: boolean
}

/** The data of each event type. */
export interface EventData {
  /** A person allowed or denied it on the console, or the system denied it. */
  'approval.answered': ApprovalAnswered
  /** Something beyond what the computer was granted waits for a person. */
  'approval.requested': ApprovalRequested
  /** An attempt at a task went on to another state. */
  'attempt.moved': AttemptMoved
  /** A box ended. */
  'box.closed': BoxClosed
  /** A box runs. */
  'box.opened': BoxOpened
  /** The workspace was committed. */
  'checkpoint.created': CheckpointCreated
  /** The workspace went back to a checkpoint. */
  'checkpoint.restored': CheckpointRestored
  /** A claim with the words of a source that it rests on. */
  'citation.recorded': CitationRecorded
  /** The user's own command ended. */
  'command.finished': CommandFinished
  /** The user's own command started in a terminal box. */
  'command.started': CommandStarted
  /** A computer was made; the first event of a log. */
  'computer.created': ComputerCreated
  /** The computer got another name. */
  'computer.renamed': ComputerRenamed
  /** A control plane took the log over under a new epoch. */
  'computer.woken': ComputerWoken
  /** Something stored is not what was stored; healed from another copy, or named. */
  'damage.found': DamageFound
  /** The desktop is blank or throwing. */
  'desktop.broke': DesktopBroke
  /** A build of the desktop is kept. */
  'desktop.built': DesktopBuilt
  /** A change to a living document waits for a user. */
  'document.proposed': DocumentProposed
  /** One revision of a living document. */
  'document.revised': DocumentRevised
  /** What a call that changes something outside came to: done, failed or unknown. */
  'effect.ended': EffectEnded
  /** A call is about to change something outside of the computer. */
  'effect.intended': EffectIntended
  /** A person said what they found of an effect whose outcome was unknown. */
  'effect.resolved': EffectResolved
  /** A box was let out to one host. */
  'egress.allowed': EgressDecided
  /** A box was refused a host. */
  'egress.denied': EgressDecided
  /** What has passed a tunnel so far. */
  'egress.metered': EgressMetered
  /** A file is gone. */
  'file.removed': FileRemoved
  /** A file was made or changed. */
  'file.written': FileWritten
  /** The log was refilled, or what was missing given up; what is before it and what could not be had. */
  'log.recovered': LogRecovered
  /** A person added a server of the Model Context Protocol, whose tools tasks may use once they are approved. */
  'mcp.added': MCPAdded
  /** A person approved a tool of a server, as the server described it then. */
  'mcp.approved': MCPApproved
  /** A tool of a server is other than what was approved, and is not used until it is approved again. */
  'mcp.changed': MCPChanged
  /** A person removed a server of the Model Context Protocol. */
  'mcp.removed': MCPRemoved
  /** A person took the approval of a server's tool back. */
  'mcp.revoked': MCPRevoked
  /** Facts hold no longer. */
  'memory.forgotten': MemoryForgotten
  /** A person told the computer to keep a fact, or an agent noted what they said. */
  'memory.remembered': MemoryRemembered
  /** Facts that were forgotten are kept again. */
  'memory.restored': MemoryRestored
  /** A loop does not wait for its model any more, or another model answers in its place. */
  'model.resumed': ModelResumed
  /** The user chose another model for a run. */
  'model.switched': ModelSwitched
  /** A loop waits for its model, which can't be had now. */
  'model.waiting': ModelWaiting
  /** A page was read for a task, in a box without the workspace. */
  'page.fetched': PageFetched
  /** What an agent program says of its work on a task; nobody vouches for it. */
  'program.reported': ProgramReported
  /** A person's intention; it causes a run. */
  'prompt.submitted': PromptSubmitted
  /** A proposed change was accepted, dismissed or superseded. */
  'proposal.resolved': ProposalResolved
  /** A task's merged tree is applied. */
  'publish.finished': PublishFinished
  /** A task's merged tree is being applied. */
  'publish.started': PublishStarted
  /** The user answered, or the deadline passed. */
  'question.answered': QuestionAnswered
  /** The Director asked the user. */
  'question.asked': QuestionAsked
  /** The checks of an attempt failed, or a person commented on its work, and its loop is asked again. */
  'repair.requested': RepairRequested
  /** choir add brought something in. */
  'repository.added': RepositoryAdded
  /** Somebody pushed into a repository of the workspace. */
  'repository.pushed': RepositoryPushed
  /** A person decided about work that they were shown. */
  'review.answered': ReviewAnswered
  /** Work that passed its checks waits until a person has looked at it. */
  'review.requested': ReviewRequested
  /** The user paused, resumed or cancelled a run. */
  'run.commanded': RunCommanded
  /** A run's status changed. */
  'run.moved': RunMoved
  /** The Director's plan, whole. */
  'run.planned': RunPlanned
  /** A run ended. */
  'run.reported': RunReported
  /** A run began. */
  'run.started': RunStarted
  /** The user spoke to a run. */
  'run.steered': RunSteered
  /** A run stood still with the machine, choir or a box, and went on. */
  'run.stood': RunStood
  /** A search service answered a task. */
  'search.answered': SearchAnswered
  /** A secret was removed. */
  'secret.removed': SecretRemoved
  /** A secret was stored. */
  'secret.set': SecretSet
  /** One of the computer's own services failed. */
  'service.failed': ServiceFailed
  /** A service of the computer's own failed too often and is not started again by itself. */
  'service.gave_up': ServiceGaveUp
  /** A service of the computer's own that had failed runs again. */
  'service.restarted': ServiceRestarted
  /** A task quotes something for the first time: a page, or a file. */
  'source.added': SourceAdded
  /** The one result of an attempt. */
  'task.finished': TaskFinished
  /** Live files that a task has read or written were changed by somebody else, and its loop is told. */
  'task.outdated': Outdated
  /** A task was requested: by the Director, or for a prompt that goes to one Associate at once. */
  'task.requested': TaskRequested
  /** An attempt at a task began. */
  'task.started': TaskStarted
  /** The theme file changed and is valid. */
  'theme.changed': ThemeChanged
  /** The theme file changed and is not valid. */
  'theme.refused': ThemeRefused
  /** A tool is about to run. */
  'tool.called': ToolCalled
  /** A tool ran. */
  'tool.returned': ToolReturned
  /** One model turn of an agent task, or of the Director when it has no task. */
  'turn.recorded': TurnRecorded
  /** What one model call consumed. */
  'usage.metered': UsageMetered
  /** A tree was checked. */
  'verification.finished': VerificationFinished
  /** A window was closed. */
  'window.closed': WindowClosed
  /** A window was raised. */
  'window.focused': WindowFocused
  /** A window was moved, resized, minimised or maximised. */
  'window.moved': WindowMoved
  /** A window was opened. */
  'window.opened': WindowOpened
}

export type EventType = keyof EventData

/** An event whose type is known to be T. Data beyond MAX_INLINE_DATA are not inline: dataref names them. */
export type EventOf<T extends EventType> = Event & { type: T; data?: EventData[T] }

/** Any known event; switch on its type. */
export type KnownEvent = { [T in EventType]: EventOf<T> }[EventType]

/** Every event type, sorted. */
export const EVENT_TYPES = [
  'approval.answered',
  'approval.requested',
  'attempt.moved',
  'box.closed',
  'box.opened',
  'checkpoint.created',
  'checkpoint.restored',
  'citation.recorded',
  'command.finished',
  'command.started',
  'computer.created',
  'computer.renamed',
  'computer.woken',
  'damage.found',
  'desktop.broke',
  'desktop.built',
  'document.proposed',
  'document.revised',
  'effect.ended',
  'effect.intended',
  'effect.resolved',
  'egress.allowed',
  'egress.denied',
  'egress.metered',
  'file.removed',
  'file.written',
  'log.recovered',
  'mcp.added',
  'mcp.approved',
  'mcp.changed',
  'mcp.removed',
  'mcp.revoked',
  'memory.forgotten',
  'memory.remembered',
  'memory.restored',
  'model.resumed',
  'model.switched',
  'model.waiting',
  'page.fetched',
  'program.reported',
  'prompt.submitted',
  'proposal.resolved',
  'publish.finished',
  'publish.started',
  'question.answered',
  'question.asked',
  'repair.requested',
  'repository.added',
  'repository.pushed',
  'review.answered',
  'review.requested',
  'run.commanded',
  'run.moved',
  'run.planned',
  'run.reported',
  'run.started',
  'run.steered',
  'run.stood',
  'search.answered',
  'secret.removed',
  'secret.set',
  'service.failed',
  'service.gave_up',
  'service.restarted',
  'source.added',
  'task.finished',
  'task.outdated',
  'task.requested',
  'task.started',
  'theme.changed',
  'theme.refused',
  'tool.called',
  'tool.returned',
  'turn.recorded',
  'usage.metered',
  'verification.finished',
  'window.closed',
  'window.focused',
  'window.moved',
  'window.opened',
] as const satisfies readonly EventType[]

/** The types a desktop session may post as its user. */
export const ACTION_TYPES = [
  'computer.renamed',
  'model.switched',
  'prompt.submitted',
  'question.answered',
  'run.commanded',
  'run.steered',
  'window.closed',
  'window.focused',
  'window.moved',
  'window.opened',
] as const satisfies readonly EventType[]

export type ActionType = (typeof ACTION_TYPES)[number]

/** The names a theme must give a colour for. */
export const THEME_COLORS = [
  'accent',
  'background',
  'border',
  'danger',
  'muted',
  'ok',
  'surface',
  'surface-raised',
  'text',
  'warn',
] as const

export type ThemeColor = (typeof THEME_COLORS)[number]

/** The themes that come with a computer. */
export const THEMES = [
  { name: 'Night', scheme: 'dark', radius: 10, colors: {
    'accent': '#d4af37',
    'background': '#0a0a0b',
    'border': '#28282c',
    'danger': '#ef6f66',
    'muted': '#98979e',
    'ok': '#62c08a',
    'surface': '#121214',
    'surface-raised': '#1a1a1d',
    'text': '#ececea',
    'warn': '#e8965a',
  } },
  { name: 'Day', scheme: 'light', radius: 10, colors: {
    'accent': '#e0b02c',
    'background': '#e9e6de',
    'border': '#d6d1c5',
    'danger': '#b3322b',
    'muted': '#625e55',
    'ok': '#1d7046',
    'surface': '#f7f5f0',
    'surface-raised': '#ffffff',
    'text': '#1b1a17',
    'warn': '#9a4f08',
  } },
] as const satisfies readonly Theme[]

/** Version of the task contract. */
export const VERSION = 1
/** Data beyond this many bytes travel as a blob. */
export const MAX_INLINE_DATA = 65536
/** A whole encoded event, in bytes. */
export const MAX_EVENT = 131072
/** The largest sequence and epoch. */
export const MAX_SEQUENCE = 2147483647
/** An encoded task or result, in bytes. */
export const MAX_TASK = 1048576
/** An encoded model request or turn, in bytes. */
export const MAX_TURN = 8388608
/** A theme file, in bytes. */
export const MAX_THEME = 16384
