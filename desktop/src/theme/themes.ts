import type { Theme } from '../contract/types'

export const night: Theme = {
  name: 'Night',
  scheme: 'dark',
  colors: {
    accent: '#d4af37',
    background: '#0a0a0b',
    border: '#28282c',
    danger: '#ef6f66',
    muted: '#98979e',
    ok: '#62c08a',
    surface: '#121214',
    'surface-raised': '#1a1a1d',
    text: '#ececea',
    warn: '#e8965a',
  },
  radius: 10,
}

export const day: Theme = {
  name: 'Day',
  scheme: 'light',
  colors: {
    accent: '#7c610e',
    background: '#e9e6de',
    border: '#d6d1c5',
    danger: '#b3322b',
    muted: '#625e55',
    ok: '#1d7046',
    surface: '#f7f5f0',
    'surface-raised': '#ffffff',
    text: '#1b1a17',
    warn: '#9a4f08',
  },
  radius: 10,
}

export const builtIn: Theme[] = [night, day]
