import type { ActorKind, CheckpointKind, Event, EventData, EventType, VerificationStatus } from './contract'

// The contract under the names the shell uses; contract.ts is generated.

export type {
  ActionType, ActorKind, AssociateResult, Change, Check, CheckpointKind, Citation, Command, Event, EventType, Frame, ModelWaiting, PlanItem, PlanStatus, Question,
  Resolution, ResultStatus, RunStatus, RunStood, Theme, Usage, Verification, WindowState,
} from './contract'

export type Verified = VerificationStatus
export type Payloads = EventData

/** The data of e when e is of the given type and carries its data inline, else undefined. */
export function dataOf<T extends EventType>(e: Event, type: T): EventData[T] | undefined {
  return e.type === type && e.data !== undefined && e.data !== null ? (e.data as EventData[T]) : undefined
}

/**
 * Who made a checkpoint whose event is by an actor of the given kind. Lists from the host
 * decide it by the same cases (contract/testdata/checkpoint-authors.json).
 */
export function checkpointAuthor(kind: CheckpointKind, task: string | undefined, by: ActorKind): ActorKind {
  if (by === 'person' || by === 'app' || by === 'program') return by
  if (task) return 'associate'
  return kind === 'auto' || kind === 'initial' || kind === 'before' ? 'system' : 'person'
}

export const actorKinds: ActorKind[] = ['person', 'app', 'program', 'director', 'associate', 'worker', 'system']

/** The kind of actor that an event is by. Events of users in logs from before actors existed count as a person's. */
export function kindOf(e: Event): ActorKind {
  const kind = e.source.slice(e.source.lastIndexOf('/') + 1)
  return kind === 'user' ? 'person' : (actorKinds.find((k) => k === kind) ?? 'system')
}
