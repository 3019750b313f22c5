import { keptStore } from '../stores/kept'
import type { Size } from './geometry'

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
