export interface State {
  loading?: boolean
  data?: string
  error?: string
}

export function start(s: State): void {
  s.loading = true
}

export function loaded(s: State, data: string): void {
  s.data = data
}
