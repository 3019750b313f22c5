import { THEME_COLORS } from '../contract/contract'
import type { Theme } from '../contract/types'

/** The names a theme must give a colour for; each becomes --choir-NAME. */
export const colorNames: readonly string[] = THEME_COLORS

const color = /^#([0-9a-f]{3}|[0-9a-f]{6}|[0-9a-f]{8})$/i

/** Says what is wrong with a theme, as "field: reason", or null when it may be applied. */
export function faultOf(theme: unknown): string | null {
  if (typeof theme !== 'object' || theme === null) return 'theme: is not an object'
  const t = theme as Partial<Theme>
  if (typeof t.name !== 'string' || t.name === '' || t.name.length > 60) return 'name: must be 1 to 60 characters'
  if (t.scheme !== 'dark' && t.scheme !== 'light') return 'scheme: must be dark or light'
  if (typeof t.radius !== 'number' || !Number.isInteger(t.radius) || t.radius < 0 || t.radius > 24) return 'radius: must be from 0 to 24'
  if (typeof t.colors !== 'object' || t.colors === null) return 'colors: is required'
  for (const name of colorNames) if (!(name in t.colors)) return `colors.${name}: is required`
  for (const [name, value] of Object.entries(t.colors)) {
    if (!colorNames.includes(name)) return `colors.${name}: is not a known colour`
    if (typeof value !== 'string' || !color.test(value)) return `colors.${name}: must be written as #rrggbb`
  }
  return null
}

/** Puts a theme's values on an element as CSS variables. The theme must be valid. */
export function paint(theme: Theme, root: HTMLElement): void {
  for (const name of THEME_COLORS) root.style.setProperty(`--choir-${name}`, theme.colors[name])
  root.style.setProperty('--choir-radius', `${theme.radius}px`)
  root.style.colorScheme = theme.scheme
  root.dataset.scheme = theme.scheme
}
