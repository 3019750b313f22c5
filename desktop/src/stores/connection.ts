import type { LinkState } from '../link/link'
import type { Queued } from '../link/outbox'
import type { Provider, Session, Snapshot } from '../link/protocol'
import { keptStore } from './kept'

interface ConnectionState {
  state: LinkState
  detail: string
  /** The actions that wait for the log, and their number. */
  queued: Queued[]
  waiting: number
  name: string
  cid: string
  readOnly: boolean
  provider: Provider | null
  notes: string[]
  isolation: string
  /** Whether the first snapshot showed a computer that has no run and no window. */
  fresh: boolean
  /** Whether the first snapshot has arrived. */
  loaded: boolean
  moved(state: LinkState, detail: string): void
  met(session: Session): void
  saw(snapshot: Snapshot): void
  rename(name: string): void
}

export const useConnection = keptStore<ConnectionState>('connection', (set) => ({
  state: 'connecting',
  detail: '',
  queued: [],
  waiting: 0,
  name: '',
  cid: '',
  readOnly: false,
  provider: null,
  notes: [],
  isolation: '',
  fresh: false,
  loaded: false,
  moved: (state, detail) => set({ state, detail }),
  met: (s) => set({ name: s.name, cid: s.cid, readOnly: s.readOnly, provider: s.provider }),
  saw: (s) =>
    set((old) => ({
      name: s.computer.name,
      notes: s.computer.notes ?? [],
      isolation: s.computer.isolation ?? '',
      fresh: !old.loaded && s.runs.length === 0 && s.windows.length === 0,
      loaded: true,
    })),
  rename: (name) => set({ name }),
}))
