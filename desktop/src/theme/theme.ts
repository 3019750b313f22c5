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
  return unreadable(t.colors)
}

/** What must be readable on what, and how well (WCAG): running text as AA asks, marks and large words as that does. */
const pairs: [ink: (keyof Theme['colors'])[], ground: (keyof Theme['colors'])[], least: number][] = [
  [['text'], ['background', 'surface', 'surface-raised'], 4.5],
  [['muted'], ['surface', 'surface-raised'], 4.5],
  [['muted'], ['background'], 3],
  [['accent', 'ok', 'warn', 'danger'], ['surface', 'surface-raised'], 3],
]

function unreadable(colors: Theme['colors']): string | null {
  for (const [inks, grounds, least] of pairs) {
    for (const ink of inks) {
      for (const ground of grounds) {
        const got = contrast(colors[ink], colors[ground])
        if (got < least) return `colors.${ink}: can’t be read on ${ground} ${colors[ground]}: the contrast is ${got.toFixed(1)}, and must be ${least}`
      }
    }
  }
  return null
}

function luminance(hex: string): number {
  const h = hex.length === 4 ? [...hex.slice(1)].map((c) => c + c).join('') : hex.slice(1, 7)
  const [r, g, b] = [0, 2, 4].map((i) => {
    const v = parseInt(h.slice(i, i + 2), 16) / 255
    return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4
  }) as [number, number, number]
  return 0.2126 * r + 0.7152 * g + 0.0722 * b
}

/** The contrast of two colours, from 1 to 21; what shines through is taken as opaque. */
export function contrast(a: string, b: string): number {
  const [x, y] = [luminance(a), luminance(b)].sort((m, n) => n - m) as [number, number]
  return (x + 0.05) / (y + 0.05)
}

/** Puts a theme's values on an element as CSS variables. The theme must be valid. */
export function paint(theme: Theme, root: HTMLElement): void {
  for (const name of THEME_COLORS) root.style.setProperty(`--choir-${name}`, theme.colors[name])
  root.style.setProperty('--on-accent', contrast(theme.colors.accent, '#ffffff') > contrast(theme.colors.accent, '#0a0a0b') ? '#ffffff' : '#0a0a0b')
  root.style.setProperty('--choir-radius', `${theme.radius}px`)
  root.style.colorScheme = theme.scheme
  root.dataset.scheme = theme.scheme
}
