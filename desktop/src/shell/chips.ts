// How the bar's row of windows uses its room, in CSS pixels; Bar.module.css has the same widths.

const gap = 4
const icon = 44 // a window that shows only its icon
const least = 96 // the front window, which also shows its name
const words = 110 // a window whose name can still be read
const more = 56 // the button that lists all

/** How many of so many open windows the row shows, and whether all but the front one show only their icons. Where not all fit, there is room for the button that lists them. */
export function chips(open: number, room: number): { most: number; tight: boolean } {
  const fit = (width: number) => Math.max(1, 1 + Math.floor((width - least) / (icon + gap)))
  return { most: open <= fit(room) ? open : fit(room - more - gap), tight: open * (words + gap) > room }
}
