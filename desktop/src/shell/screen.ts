import type { Frame } from '../contract/types'
import type { WindowRecord } from '../link/protocol'
import { keptStore } from '../stores/kept'
import { stacked, useWindows } from '../stores/windows'
import { fit, uncovered, zoneFrame, type Size } from './geometry'

interface ScreenState {
  /** The area for windows: the page without the bottom bar. */
  area: Size
  /** Whether windows are shown one at a time. */
  phone: boolean
  measure(area: Size, pageWidth: number): void
}

export const useScreen = keptStore<ScreenState>('screen', (set, get) => ({
  area: { w: 1280, h: 720 },
  phone: false,
  measure(area, pageWidth) {
    const phone = pageWidth < 640
    const old = get()
    if (old.area.w !== area.w || old.area.h !== area.h || old.phone !== phone) set({ area, phone })
  },
}))

/** Where a window is on this screen. */
export function frameOf(w: WindowRecord, area: Size): Frame {
  return w.state === 'maximised' ? zoneFrame('full', area) : fit(w.frame, area)
}

/** How much of a window must be free so that what it shows can be read: more than the edge of one that lies below another. */
const readable = 0.25

/** The windows that somebody sees: not minimised, and not covered by others but for an edge; on a phone the one in front. */
export function inSight(): WindowRecord[] {
  const { area, phone } = useScreen.getState()
  const up = stacked(useWindows.getState().windows).filter((w) => w.state !== 'minimised')
  if (phone) return up.slice(-1)
  const frames = up.map((w) => frameOf(w, area))
  return up.filter((_, i) => uncovered(frames[i]!, frames.slice(i + 1)) >= readable)
}
