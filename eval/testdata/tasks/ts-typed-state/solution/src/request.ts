export type State = { kind: 'idle' } | { kind: 'loading' } | { kind: 'done'; data: string } | { kind: 'failed'; error: string }

export type Event = { type: 'start' } | { type: 'loaded'; data: string } | { type: 'broke'; error: string } | { type: 'reset' }

export const initial: State = { kind: 'idle' }

export function next(state: State, event: Event): State {
  switch (event.type) {
    case 'start':
      return state.kind === 'idle' || state.kind === 'failed' ? { kind: 'loading' } : state
    case 'loaded':
      return state.kind === 'loading' ? { kind: 'done', data: event.data } : state
    case 'broke':
      return state.kind === 'loading' ? { kind: 'failed', error: event.error } : state
    case 'reset':
      return state.kind === 'idle' ? state : initial
  }
}
