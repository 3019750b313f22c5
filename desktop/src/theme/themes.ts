import { THEMES } from '../contract/contract'
import type { Theme } from '../contract/types'

export const [night, day] = THEMES

export const builtIn: readonly Theme[] = THEMES
