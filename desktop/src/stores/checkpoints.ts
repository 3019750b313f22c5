import type { Event } from '../contract/types'
import { checkpointAuthor, dataOf, kindOf } from '../contract/types'
import type { Checkpoint } from '../link/protocol'
import { keptStore } from './kept'

interface CheckpointsState {
  /** Newest first. */
  checkpoints: Checkpoint[]
  /** Whether older ones may exist on the host. */
  more: boolean
  reset(list: Checkpoint[]): void
  older(list: Checkpoint[], more: boolean): void
  take(e: Event): void
}

export const useCheckpoints = keptStore<CheckpointsState>('checkpoints', (set) => ({
  checkpoints: [],
  more: false,
  reset: (checkpoints) => set({ checkpoints, more: checkpoints.length >= 50 }),
  older: (list, more) =>
    set((s) => {
      const known = new Set(s.checkpoints.map((c) => c.commit))
      return { checkpoints: [...s.checkpoints, ...list.filter((c) => !known.has(c.commit))], more }
    }),
  take(e) {
    const made = dataOf(e, 'checkpoint.created')
    if (made) {
      const c: Checkpoint = {
        sequence: e.sequence, time: e.time, author: checkpointAuthor(made.kind, e.task, kindOf(e)), commit: made.commit, kind: made.kind, message: made.message,
        verified: made.verified, files: made.files,
        skipped: (made.skipped ?? []).slice(0, 20), left: made.left ?? 0, ignored: (made.ignored ?? []).slice(0, 10), outside: made.outside ?? 0,
        ...(made.parent ? { parent: made.parent } : {}),
        ...(kindOf(e) !== 'system' && e.actor ? { actor: e.actor } : {}),
        ...(kindOf(e) !== 'system' && e.user ? { user: e.user } : {}),
        ...(e.run ? { run: e.run } : {}),
        ...(e.task ? { task: e.task } : {}),
      }
      set((s) => ({ checkpoints: [c, ...s.checkpoints.filter((x) => x.commit !== c.commit)] }))
    }
  },
}))
