// What a desktop's page gives the console to keep, so that the page that takes
// its place has it, on another origin too: actions that wait for the log, lines
// that were sent, what is being typed. It is opaque here, bounded, and given
// only to pages of the same computer.

const most = { outbox: 400_000, prompts: 64_000, bar: 2_000_000 }
const here = new Set(['bar']) // of this tab alone, and of this page of the console

export class Kept {
  constructor() {
    this.memory = new Map()
  }

  put(cid, name, value) {
    if (!Object.hasOwn(most, name) || (value !== null && (typeof value !== 'string' || value.length > most[name]))) return
    const key = `choir.kept.${cid}.${name}`
    if (value === null) this.memory.delete(key)
    else this.memory.set(key, value)
    if (here.has(name)) return
    try {
      if (value === null) localStorage.removeItem(key)
      else localStorage.setItem(key, value)
    } catch {
      // Then it lasts as long as this page.
    }
  }

  all(cid) {
    const kept = {}
    for (const name of Object.keys(most)) {
      const key = `choir.kept.${cid}.${name}`
      let value = this.memory.get(key)
      if (value === undefined && !here.has(name)) {
        try {
          value = localStorage.getItem(key) ?? undefined
        } catch {
          // Nothing was kept.
        }
      }
      if (value !== undefined) kept[name] = value
    }
    return kept
  }
}
