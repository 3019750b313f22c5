import { maxFile } from '../../link/files'

/** One file to bring in, and the folders that it lies in, from the dropped one on. */
export interface Item {
  file: File
  name: string
  folders: string[]
}

/** Something that was left out, and why. */
export interface Left {
  name: string
  why: string
}

/** What one drop brings in at most: it is all sent through the page, one file after the other. */
export interface Bounds {
  files: number
  depth: number
  bytes: number
  file: number
}
export const bounds: Bounds = { files: 1000, depth: 16, bytes: 512 << 20, file: maxFile }

const mb = (bytes: number) => `${(bytes / (1 << 20)).toLocaleString('en')} MB`
const whys = (b: Bounds) => ({
  large: `larger than the ${mb(b.file)} that a page may bring in for now; choir files put brings it in`,
  total: `more than ${mb(b.bytes)} at once; drop it by itself, or use choir files put`,
  many: `more than ${b.files.toLocaleString('en')} files at once; choir add brings whole projects in`,
  deep: `more than ${b.depth} folders deep; choir add brings it in`,
  history: 'the history of a repository; choir add brings it in',
  empty: 'an empty folder',
})

/** Lists the files of what was dropped, the upper ones first, as far as the bounds go. */
export async function gather(things: (FileSystemEntry | File)[], signal?: AbortSignal, most: Bounds = bounds): Promise<{ items: Item[]; left: Left[] }> {
  const why = whys(most)
  const items: Item[] = []
  const left: Left[] = []
  let bytes = 0
  const queue = things.map((thing) => ({ thing, folders: [] as string[] }))
  const take = (file: File, folders: string[], path: string) => {
    if (file.size > most.file) left.push({ name: path, why: why.large })
    else if (bytes + file.size > most.bytes) left.push({ name: path, why: why.total })
    else {
      bytes += file.size
      items.push({ file, name: file.name, folders })
    }
  }
  for (let at = 0; at < queue.length && !signal?.aborted; at++) {
    const { thing, folders } = queue[at]!
    const path = [...folders, thing.name].join('/')
    try {
      if (items.length >= most.files) left.push({ name: path, why: why.many })
      else if (thing instanceof File) take(thing, folders, path)
      else if (thing.isFile) take(await fileOf(thing as FileSystemFileEntry), folders, path)
      else if (thing.name === '.git') left.push({ name: path, why: why.history })
      else if (folders.length >= most.depth) left.push({ name: path, why: why.deep })
      else {
        const { inside, more } = await list(thing as FileSystemDirectoryEntry, most.files)
        if (inside.length === 0) left.push({ name: path, why: why.empty })
        if (more) left.push({ name: `the rest of ${path}`, why: why.many })
        for (const e of inside) queue.push({ thing: e, folders: [...folders, thing.name] })
      }
    } catch (e) {
      left.push({ name: path, why: unread(e) })
    }
  }
  return { items, left }
}

/** Why a file of the person's own machine can't be read. */
export function unread(e: unknown): string {
  return `not readable: ${e instanceof Error ? e.message : String(e)}`
}

const fileOf = (entry: FileSystemFileEntry) => new Promise<File>((resolve, reject) => entry.file(resolve, reject))

/** What is in a folder; no more than can be brought in is looked at, for it may be endless. */
async function list(folder: FileSystemDirectoryEntry, most: number): Promise<{ inside: FileSystemEntry[]; more: boolean }> {
  const reader = folder.createReader()
  const inside: FileSystemEntry[] = []
  for (;;) {
    const some = await new Promise<FileSystemEntry[]>((resolve, reject) => reader.readEntries(resolve, reject))
    if (some.length === 0) return { inside, more: false }
    inside.push(...some)
    if (inside.length > most) return { inside: inside.slice(0, most), more: true }
  }
}
