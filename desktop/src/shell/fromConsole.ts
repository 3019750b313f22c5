import { useApps } from '../apps/registry'
import { onConsole } from '../link/console'
import { useConnection } from '../stores/connection'
import { keptThing } from '../stores/kept'
import { useRuns } from '../stores/runs'
import { appFor, openThing } from './intents'

// The console shows a run of this computer: what waits for its user is listed there. Before its window is opened it must be
// known whether it is open already.
keptThing('opened from the console', () =>
  onConsole(({ type, run }) => {
    if (type !== 'choir.open' || typeof run !== 'string' || !/^[\w-]{1,64}$/.test(run)) return
    const stops: (() => void)[] = []
    const open = () => {
      if (!appFor('run') || !useConnection.getState().loaded) return
      for (const stop of stops.splice(0)) stop()
      openThing('run', run, useRuns.getState().runs[run]?.prompt || 'Run')
    }
    stops.push(useApps.subscribe(open), useConnection.subscribe(open))
    open()
  }),
)
