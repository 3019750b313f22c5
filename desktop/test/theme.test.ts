import { beforeEach, describe, expect, it } from 'vitest'
import { readFileSync } from 'node:fs'
import { useTheme } from '../src/stores/theme'
import { builtIn, day, night } from '../src/theme/themes'
import { colorNames, contrast, faultOf, painted } from '../src/theme/theme'
import { THEME_COLORS } from '../src/contract/contract'

const css = (name: string) => document.documentElement.style.getPropertyValue(name)

describe('themes', () => {
  beforeEach(() => useTheme.getState().apply(night))

  it('become variables on the root', () => {
    expect(useTheme.getState().apply(day)).toBe(true)
    expect(css('--choir-background')).toBe(day.colors.background)
    expect(css('--choir-surface-raised')).toBe('#ffffff')
    expect(css('--choir-radius')).toBe('10px')
    expect(document.documentElement.dataset.scheme).toBe('light')
  })

  it.each([
    ['not an object', null, 'theme'],
    ['a colour too few', { ...night, colors: { ...night.colors, text: undefined } }, 'colors.text'],
    ['an unknown colour', { ...night, colors: { ...night.colors, glow: '#fff' } }, 'colors.glow'],
    ['code for a colour', { ...night, colors: { ...night.colors, text: 'url(https://evil.example)' } }, 'colors.text'],
    ['a colour that ends the rule', { ...night, colors: { ...night.colors, text: '#fff;}' } }, 'colors.text'],
    ['a scheme there is not', { ...night, scheme: 'dim' }, 'scheme'],
    ['a radius too large', { ...night, radius: 99 }, 'radius'],
    ['a name too long', { ...night, name: 'x'.repeat(61) }, 'name'],
  ])('%s is refused and the last good one stays', (_, theme, field) => {
    expect(useTheme.getState().apply(theme)).toBe(false)
    expect(useTheme.getState().refused).toMatch(new RegExp(`^${field}: `))
    expect(css('--choir-background')).toBe(night.colors.background)
  })

  it.each([
    ['a teal desktop', { background: '#008080' }, ['text', 'muted']],
    ['a light desktop under dark surfaces', { background: '#e8e8e8' }, ['text', 'muted']],
    ['dark words', { text: '#333333' }, ['text']],
    ['quiet words that are too quiet', { muted: '#444444' }, ['muted']],
    ['a mark one does not see', { danger: '#222222' }, ['danger']],
    ['every grey', { background: '#808080', surface: '#777777', 'surface-raised': '#7a7a7a', text: '#808080', muted: '#787878' }, ['text', 'muted', 'ok', 'warn', 'danger']],
    ['an accent that is too bright to write with', { accent: '#ffffff', background: '#e8e8e8', surface: '#eeeeee', 'surface-raised': '#ffffff', text: '#111111', muted: '#444444', ok: '#0a5a30', warn: '#7a3f00', danger: '#8f1f1a' }, []],
    ['nothing to change', {}, []],
  ])('are made readable: %s', (_, some, changed) => {
    const theme = { ...night, colors: { ...night.colors, ...some } }
    const got = painted(theme)
    expect(new Set(got.changed)).toEqual(new Set(changed))
    for (const ground of ['surface', 'surface-raised'] as const) {
      for (const ink of ['text', 'muted'] as const) expect(contrast(got.colors[ink], got.colors[ground]), `${ink} on ${ground}`).toBeGreaterThanOrEqual(4.5)
      for (const ink of ['accent', 'ok', 'warn', 'danger'] as const) expect(contrast(got.colors[ink], got.colors[ground]), `${ink} on ${ground}`).toBeGreaterThanOrEqual(4.5)
    }
    expect(contrast(got.onDesktop.text, theme.colors.background)).toBeGreaterThanOrEqual(4.5)
    expect(contrast(got.onDesktop.muted, theme.colors.background)).toBeGreaterThanOrEqual(4.5)
    for (const mark of ['accent', 'ok', 'warn', 'danger'] as const) expect(contrast(got.onDesktop[mark], theme.colors.background), `${mark} on the desktop`).toBeGreaterThanOrEqual(4.5)
    for (const ground of ['surface', 'surface-raised'] as const) expect(contrast(got.field, got.colors[ground]), `a field's edge on ${ground}`).toBeGreaterThanOrEqual(3)
    // The grounds stay as they were asked for.
    expect(got.colors.background).toBe(theme.colors.background)
    expect(useTheme.getState().apply(theme)).toBe(true)
    expect(css('--choir-background')).toBe(theme.colors.background)
    expect(css('--on-desktop')).toBe(got.onDesktop.text)
    expect(css('--on-desktop-danger')).toBe(got.onDesktop.danger)
    expect(css('--field')).toBe(got.field)
    expect(css('--accent-fill')).toBe(theme.colors.accent)
    expect(contrast(css('--on-accent'), theme.colors.accent), 'words on the accent').toBeGreaterThanOrEqual(4.5)
  })

  it('name exactly the colours of the contract', () => {
    expect([...colorNames].sort()).toEqual([...THEME_COLORS].sort())
  })

  it('that are built in are valid and readable (AA)', () => {
    for (const t of builtIn) {
      expect(faultOf(t)).toBeNull()
      expect(painted(t).changed).toEqual([])
      for (const ground of ['background', 'surface', 'surface-raised'] as const) {
        for (const ink of ['text', 'muted', 'ok', 'warn', 'danger'] as const) {
          expect(contrast(t.colors[ink], t.colors[ground]), `${t.name}: ${ink} on ${ground}`).toBeGreaterThanOrEqual(4.5)
        }
      }
    }
  })

  it('can recolour the desktop in one marked line of its source', () => {
    const source = readFileSync('src/shell/desktop.css', 'utf8')
    expect(source.match(/--shell-background:/g)).toHaveLength(1)
    expect(source).toContain('--shell-background: var(--choir-background);')
    expect(source).toContain('background-color: var(--shell-background);')
  })
})
