import { keptStore } from '../../stores/kept'

/** The run whose window takes the text cursor once it is there; '' for none. */
export const useHere = keptStore<{ run: string }>('run here', () => ({ run: '' }))
