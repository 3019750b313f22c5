import { loadApps } from './registry'

// Vite turns this into the list of folders that exist, and sends this module
// again when a folder comes or goes; it accepts itself, so nothing else reloads.
void loadApps(import.meta.glob('./*/manifest.{ts,tsx}'))

import.meta.hot?.accept()
