// Whether the console is light or dark: as the desktop that it last showed, at first as the system. No colour of a theme crosses.

const key = 'choir.scheme'
const pause = 1000 // a page that changes its mind all the time makes nothing flicker

class Scheme {
  constructor() {
    this.wanted = ''
    this.at = -pause
    this.timer = 0
  }

  /** Follows a desktop; anything but light and dark is nothing to follow. */
  take(scheme) {
    if (scheme !== 'light' && scheme !== 'dark') return
    this.wanted = scheme
    clearTimeout(this.timer)
    const wait = this.at + pause - performance.now()
    if (wait > 0) this.timer = setTimeout(() => this.apply(), wait)
    else this.apply()
  }

  apply() {
    const root = document.documentElement
    if (root.dataset.scheme === this.wanted) return
    this.at = performance.now()
    root.dataset.scheme = this.wanted
    try {
      localStorage.setItem(key, this.wanted)
    } catch {
      // Without storage the next page begins as the system is.
    }
  }
}

export const scheme = new Scheme()

/** What the system prefers. */
export function systems() {
  return matchMedia('(prefers-color-scheme: light)').matches ? 'light' : 'dark'
}
