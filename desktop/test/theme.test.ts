import { beforeEach, describe, expect, it } from 'vitest'
import { readFileSync } from 'node:fs'
import { useTheme } from '../src/stores/theme'
import { builtIn, day, night } from '../src/theme/themes'
import { colorNames, contrast, faultOf } from '../src/theme/theme'
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
    ['text that can’t be read', { ...night, colors: { ...night.colors, background: '#e8e8e8' } }, 'colors.text'],
    ['quiet words that can’t be read', { ...night, colors: { ...night.colors, muted: '#444444' } }, 'colors.muted'],
    ['marks that can’t be seen', { ...night, colors: { ...night.colors, danger: '#222' } }, 'colors.danger'],
    ['a name too long', { ...night, name: 'x'.repeat(61) }, 'name'],
  ])('%s is refused and the last good one stays', (_, theme, field) => {
    expect(useTheme.getState().apply(theme)).toBe(false)
    expect(useTheme.getState().refused).toMatch(new RegExp(`^${field}: `))
    expect(css('--choir-background')).toBe(night.colors.background)
  })

  it('name exactly the colours of the contract', () => {
    expect([...colorNames].sort()).toEqual([...THEME_COLORS].sort())
  })

  it('that are built in are valid and readable (AA)', () => {
    for (const t of builtIn) {
      expect(faultOf(t)).toBeNull()
      for (const ground of ['background', 'surface', 'surface-raised'] as const) {
        for (const ink of ['text', 'muted', 'accent', 'ok', 'warn', 'danger'] as const) {
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
