import { act, cleanup, render, screen } from '@testing-library/react'
import { afterEach, describe, expect, it, vi } from 'vitest'
import { loadApps, readApp, useApps, visible } from '../src/apps/registry'
import { Window } from '../src/shell/Window'

const icon = () => null
const good = { name: 'Clock', icon, entry: () => Promise.resolve({ default: () => <p>tick</p> }), window: { w: 300, h: 200 } }
const at = (m: unknown) => () => Promise.resolve({ default: m })

afterEach(cleanup)

async function show(entry: () => Promise<{ default: () => React.ReactNode }>) {
  const app = await readApp('./bad/manifest.ts', at({ ...good, name: 'Bad', entry }))
  const record = { window: 'w', app: 'bad', title: 'Bad', frame: { x: 0, y: 0, w: 300, h: 200 }, state: 'normal' as const, z: 1 }
  await act(async () => {
    render(
      <>
        <p>the rest of the desktop</p>
        <Window label="x" record={record} app={app} area={{ w: 1000, h: 700 }} active phone={false} swipe={() => {}} hint={() => {}} />
      </>,
    )
    await Promise.resolve()
  })
}

describe('the registry of apps', () => {
  it('takes what folders there are, in their order', async () => {
    await loadApps({
      './clock/manifest.ts': at(good),
      './first/manifest.tsx': at({ ...good, name: 'First', order: 1 }),
      './viewer/manifest.ts': at({ ...good, name: 'Viewer', hidden: true }),
    })
    expect(visible(useApps.getState().apps).map((a) => a.id)).toEqual(['first', 'clock'])
    await loadApps({ './clock/manifest.ts': at(good) })
    expect(Object.keys(useApps.getState().apps)).toEqual(['clock'])
  })

  it('gives the same component while the manifest is the same, so that windows keep their state', async () => {
    const [a, b] = await Promise.all([readApp('./clock/manifest.ts', at(good)), readApp('./clock/manifest.ts', at(good))])
    expect(a.component).toBe(b.component)
  })

  it.each([
    ['no default export', () => Promise.resolve({}), 'default export'],
    ['no name', at({ ...good, name: '' }), 'manifest.name'],
    ['no entry', at({ ...good, entry: './Clock' }), 'manifest.entry'],
    ['no size', at({ ...good, window: {} }), 'manifest.window'],
    ['code that throws', () => Promise.reject(new Error('Unexpected token')), 'Unexpected token'],
  ])('a manifest with %s is an app that says so', async (_, load, words) => {
    await loadApps({ './clock/manifest.ts': at(good), './bad/manifest.ts': load })
    const { clock, bad } = useApps.getState().apps
    expect(clock?.fault).toBeUndefined()
    expect(bad?.fault).toContain(words)
    expect(visible(useApps.getState().apps)).toHaveLength(2)
  })

  it('an app that throws shows its own card and leaves the rest standing', async () => {
    vi.spyOn(console, 'error').mockImplementation(() => {})
    await show(() =>
      Promise.resolve({
        default: () => {
          throw new Error('it broke')
        },
      }),
    )
    expect(await screen.findByText('it broke')).toBeTruthy()
    expect(screen.getByText('Bad stopped working')).toBeTruthy()
    expect(screen.getByText('the rest of the desktop')).toBeTruthy()
  })

  it('an app that can’t be loaded shows its own card', async () => {
    vi.spyOn(console, 'error').mockImplementation(() => {})
    await show(() => Promise.reject(new Error('no such file')))
    expect(await screen.findByText('no such file')).toBeTruthy()
  })
})
