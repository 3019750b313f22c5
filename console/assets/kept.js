// What a desktop's page gives the console to keep for the page that replaces it, which may
// have another origin: actions that wait for the log, lines that were sent, what is being
// typed. The console does not look into it, bounds it, and gives it only to pages of the
// same computer.
//
// What waits for the log is bound to the generation of the page that wrote it. After the console has taken the source
// back, what pages of before left is handed on as set aside: the next page shows it, and sends it when somebody says so.

const most = { outbox: 400_000, prompts: 64_000, bar: 2_000_000 }
const mostItems = 600
const mostAside = 50 // of those that are set aside, for one page: the others wait until these are dealt with
const aside = 'A page that was taken back had left this. Send it only if these are your words.'
const here = new Set(['bar']) // kept for this tab only, as long as this page of the console
const itemName = /^[\w-]{1,64}$/

export class Kept {
  constructor() {
    this.memory = new Map()
  }

  /**
   * Keeps a value of a page of that generation; null forgets it. What waits for the log is kept item by item, so that tabs
   * don't overwrite each other's, and by no page of an older generation than the one that wrote it last.
   */
  put(cid, generation, name, value, item) {
    if (!Object.hasOwn(most, name) || (value !== null && (typeof value !== 'string' || value.length > most[name]))) return
    let key = `choir.kept.${cid}.${name}`
    if (name === 'outbox') {
      if (!itemName.test(item ?? '') || this.items(cid).get(item)?.generation > generation) return
      if (value !== null && !this.fits(cid, item, value)) return
      key += `.${item}`
      if (value !== null) value = `${generation}:${value}`
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

  /** Whether there is room for an item. What was set aside takes none from the pages that came after. */
  fits(cid, item, value) {
    const first = this.first(cid)
    const others = [...this.items(cid)].filter(([id, { generation }]) => id !== item && generation >= first).map(([, { text }]) => text)
    return others.length < mostItems && others.reduce((n, text) => n + text.length, value.length) <= most.outbox
  }

  /** The items that wait for the log, by id; tabs that share the storage see each other's. */
  items(cid) {
    const prefix = `choir.kept.${cid}.outbox.`
    const found = new Map()
    for (const [key, value] of [...stored(), ...this.memory]) if (key.startsWith(prefix)) found.set(key.slice(prefix.length), itemOf(value))
    return found
  }

  /** From now on pages before that generation are of a source that was taken back. */
  tookBack(cid, generation) {
    const key = `choir.tookback.${cid}`
    this.memory.set(key, String(generation))
    try {
      localStorage.setItem(key, String(generation))
    } catch {
      // It holds as long as this page.
    }
  }

  /** The first generation whose source was not taken back. */
  first(cid) {
    const key = `choir.tookback.${cid}`
    return Math.max(0, ...[...stored(), ...this.memory].map(([k, value]) => (k === key && Number(value)) || 0))
  }

  all(cid) {
    const first = this.first(cid)
    const items = [...this.items(cid)].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, item]) => item)
    const own = items.filter(({ generation }) => generation >= first).map(({ text }) => text)
    const old = items.filter(({ generation }) => generation < first).flatMap(({ text }) => setAside(text))
    const kept = { outbox: [...old.slice(0, mostAside), ...own] }
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

/** An item as it is stored: the generation, and what the page gave. Earlier consoles stored the text alone. */
function itemOf(value) {
  const [, generation, text] = /^(\d+):(.*)$/s.exec(value) ?? ['', 0, value]
  return { generation: Number(generation), text }
}

/** What a page left, so that the next one does not send it by itself; nothing if no page could. */
function setAside(text) {
  try {
    const { action, tries } = JSON.parse(text)
    return action ? [JSON.stringify({ action, tries, stuck: aside })] : []
  } catch {
    return []
  }
}

function stored() {
  try {
    return Object.entries(localStorage)
  } catch {
    return [] // nothing was stored
  }
}
