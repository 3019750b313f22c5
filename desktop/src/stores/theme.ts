import type { Theme } from '../contract/types'
import { faultOf, paint } from '../theme/theme'
import { night } from '../theme/themes'
import { keptStore } from './kept'

interface ThemeState {
  theme: Theme
  /** Why the newest theme was not applied, or null. */
  refused: string | null
  /** Applies a valid theme, and otherwise keeps the last valid one. Returns whether it was applied. */
  apply(theme: unknown): boolean
  refuse(reason: string): void
}

export const useTheme = keptStore<ThemeState>('theme', (set) => ({
  theme: night,
  refused: null,
  apply(theme) {
    const fault = faultOf(theme)
    if (fault) {
      set({ refused: fault })
      return false
    }
    set({ theme: theme as Theme, refused: null })
    paint(theme as Theme, document.documentElement)
    return true
  },
  refuse: (refused) => set({ refused }),
}))
