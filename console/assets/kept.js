// What a desktop's page gives the console to keep for the page that replaces it, which may
// have another origin: actions that wait for the log, lines that were sent, what is being
// typed. The console does not look into it, bounds it, and gives it only to pages of the
// same computer.

const most = { outbox: 400_000, prompts: 64_000, bar: 2_000_000 }
const mostItems = 600
const here = new Set(['bar']) // kept for this tab only, as long as this page of the console
const itemName = /^[\w-]{1,64}$/

export class Kept {
  constructor() {
    this.memory = new Map()
  }

  /** Keeps a value; null forgets it. What waits for the log is kept item by item, so that tabs don't overwrite each other's. */
  put(cid, name, value, item) {
    if (!Object.hasOwn(most, name) || (value !== null && (typeof value !== 'string' || value.length > most[name]))) return
    let key = `choir.kept.${cid}.${name}`
    if (name === 'outbox') {
      if (!itemName.test(item ?? '')) return
      if (value !== null && !this.fits(cid, item, value)) return
      key += `.${item}`
    }
    this.memory.delete(key)
    if (here.has(name)) {
      if (value !== null) this.memory.set(key, value)
      return
    }
    try {
      if (value === null) localStorage.removeItem(key)
      else localStorage.setItem(key, value)
    } catch {
      if (value !== null) this.memory.set(key, value) // without storage it lasts as long as this page
    }
  }

  fits(cid, item, value) {
    const others = [...this.items(cid)].filter(([id]) => id !== item)
    return others.length < mostItems && others.reduce((n, [, v]) => n + v.length, value.length) <= most.outbox
  }

  /** The items that wait for the log, by id; tabs that share the storage see each other's. */
  items(cid) {
    const prefix = `choir.kept.${cid}.outbox.`
    const found = new Map()
    for (const [key, value] of [...stored(), ...this.memory]) if (key.startsWith(prefix)) found.set(key.slice(prefix.length), value)
    return found
  }

  all(cid) {
    const kept = { outbox: [...this.items(cid).values()] }
    for (const name of Object.keys(most)) {
      if (name === 'outbox') continue
      const key = `choir.kept.${cid}.${name}`
      let value = this.memory.get(key)
      if (value === undefined && !here.has(name)) {
        try {
          value = localStorage.getItem(key) ?? undefined
        } catch {
          // Nothing was stored.
        }
      }
      if (value !== undefined) kept[name] = value
    }
    return kept
  }
}

function stored() {
  try {
    return Object.entries(localStorage)
  } catch {
    return [] // nothing was stored
  }
}
