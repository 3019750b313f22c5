import { THEME_COLORS } from '../contract/contract'
import type { Theme } from '../contract/types'

/** The names a theme must give a colour for; each becomes --choir-NAME. */
export const colorNames: readonly string[] = THEME_COLORS

const color = /^#([0-9a-f]{3}|[0-9a-f]{6}|[0-9a-f]{8})$/i

/** What is wrong with a theme, as "field: reason", or null when it may be applied. */
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

type Colour = keyof Theme['colors']

/** The colours in which words are written. */
const inks = ['text', 'muted', 'accent', 'ok', 'warn', 'danger'] as const

/** The contrast that words need (WCAG AA). */
const enough = 4.5

function mix(from: string, to: number, part: number): string {
  const h = from.length === 4 ? [...from.slice(1)].map((c) => c + c).join('') : from.slice(1, 7)
  return `#${[0, 2, 4].map((i) => Math.round(parseInt(h.slice(i, i + 2), 16) * (1 - part) + to * part).toString(16).padStart(2, '0')).join('')}`
}

/** A colour that is legible on every ground: the given one, or that made lighter or darker by as little as needed. */
export function legible(ink: string, grounds: string[], least: number): string {
  const worst = (c: string) => Math.min(...grounds.map((g) => contrast(c, g)))
  for (let part = 0; part <= 1; part += 0.05) {
    for (const to of [255, 0]) {
      const c = part === 0 ? ink : mix(ink, to, part)
      if (worst(c) >= least) return c
    }
  }
  // The grounds differ so much that nothing is legible on both, so the better extreme is
  // taken.
  return worst('#ffffff') > worst('#000000') ? '#ffffff' : '#000000'
}

/** Inks as they are painted directly on the desktop's background. */
type OnDesktop = Pick<Theme['colors'], (typeof inks)[number]>

/**
 * The colours as they are painted: a colour whose words would be illegible on their grounds is changed until they are legible. The accent is
 * painted as it is where it fills something, so that it does not count as changed. A field's edge is a border that can be seen (WCAG 1.4.11).
 */
export function painted(theme: Theme): { colors: Theme['colors']; onDesktop: OnDesktop; field: string; changed: Colour[] } {
  const colors = { ...theme.colors }
  const grounds = [colors.surface, colors['surface-raised']]
  for (const ink of inks) colors[ink] = legible(colors[ink], grounds, enough)
  const onDesktop = Object.fromEntries(inks.map((ink) => [ink, legible(theme.colors[ink], [colors.background], enough)])) as OnDesktop
  // Fields lie on surfaces and have the ground of a well, which is a little nearer to the text.
  const field = legible(theme.colors.border, grounds, 3.3)
  const changed: Colour[] = inks.filter((ink) => ink !== 'accent' && (colors[ink] !== theme.colors[ink] || ((ink === 'text' || ink === 'muted') && onDesktop[ink] !== theme.colors[ink])))
  return { colors, onDesktop, field, changed }
}

function luminance(hex: string): number {
  const h = hex.length === 4 ? [...hex.slice(1)].map((c) => c + c).join('') : hex.slice(1, 7)
  const [r, g, b] = [0, 2, 4].map((i) => {
    const v = parseInt(h.slice(i, i + 2), 16) / 255
    return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4
  }) as [number, number, number]
  return 0.2126 * r + 0.7152 * g + 0.0722 * b
}

/** The contrast of two colours, from 1 to 21; transparency is ignored. */
export function contrast(a: string, b: string): number {
  const [x, y] = [luminance(a), luminance(b)].sort((m, n) => n - m) as [number, number]
  return (x + 0.05) / (y + 0.05)
}

/** Sets a theme's values on an element as CSS variables, with illegible colours changed. The theme must be valid. */
export function paint(theme: Theme, root: HTMLElement): void {
  const { colors, onDesktop, field } = painted(theme)
  for (const name of THEME_COLORS) root.style.setProperty(`--choir-${name}`, colors[name])
  for (const ink of inks) root.style.setProperty(ink === 'text' ? '--on-desktop' : `--on-desktop-${ink}`, onDesktop[ink])
  root.style.setProperty('--field', field)
  const fill = theme.colors.accent
  root.style.setProperty('--accent-fill', fill)
  root.style.setProperty('--on-accent', contrast(fill, '#ffffff') > contrast(fill, '#0a0a0b') ? '#ffffff' : '#0a0a0b')
  root.style.setProperty('--choir-radius', `${theme.radius}px`)
  root.style.colorScheme = theme.scheme
  root.dataset.scheme = theme.scheme
}
