// When the console takes an answer: not from a key that is held, not from a click that was meant for what was there a
// moment ago, and not while the desktop's page may have chosen the moment.

const settled = 1000 // milliseconds that something has stood there before it takes an answer
const lasting = 5500 // for how long a browser counts a page as used, and a margin

/** Holds back what would answer too soon in a list of cards. */
export class Calm {
  constructor(list) {
    this.list = list
    this.turn = 0 // of the newest hold: a timer of an older one frees nothing
    this.moves = new WeakMap()
    this.used = -Infinity
    // What activates a page, by the HTML standard. Nobody but the browser makes such events here.
    for (const kind of ['pointerdown', 'pointerup', 'mousedown', 'touchend', 'keydown']) {
      addEventListener(kind, (e) => e.key !== 'Escape' && (this.used = performance.now()), true)
    }
    addEventListener('keydown', (e) => held(e) && e.preventDefault(), true)
  }

  /** Has nothing in the list take an answer, until it has been seen for a second. */
  hold() {
    const mine = ++this.turn
    this.list.inert = true
    // From when it was drawn: the desktop's page may keep this one from drawing.
    requestAnimationFrame(() => setTimeout(() => mine === this.turn && this.free(), settled))
  }

  free() {
    this.turn++
    this.list.inert = false
  }

  /** A card is new where it stands: it takes no click for a second. Who types in it goes on. */
  moved(card) {
    clearTimeout(this.moves.get(card))
    card.dataset.moved = ''
    this.moves.set(card, setTimeout(() => delete card.dataset.moved, settled))
  }

  /**
   * Whether somebody has just used the desktop's page. The browser counts use of a frame as use of the page around it,
   * and does not say which it was: it was the frame if the console had no key and no pointer for as long.
   */
  get frameUsed() {
    return Boolean(navigator.userActivation?.isActive) && !this.consoleUsed
  }

  get consoleUsed() {
    return performance.now() - this.used < lasting
  }
}

/** Whether a key that is held presses something again. */
function held(e) {
  if (!e.repeat) return false
  return e.key === 'Enter' || (e.key === ' ' && !e.target.closest('input, textarea'))
}
