import type { Event } from '../../contract/types'
import { dataOf } from '../../contract/types'
import type { FileEntry } from '../../link/protocol'

/** How many paths of a folder and of its subfolders are in no checkpoint. */
export function unkeptIn(files: FileEntry[]): number {
  return files.reduce((n, f) => n + (f.unkept ? 1 : (f.unkept_beneath ?? 0)), 0)
}

/** Whether an event may have changed a folder's listing. */
export function childrenOf(e: Event, folder: string): boolean {
  const path = (dataOf(e, 'file.written') ?? dataOf(e, 'file.removed'))?.path
  if (path !== undefined) return folder === '' || path.startsWith(`${folder}/`)
  return e.type === 'checkpoint.created' || e.type === 'command.finished' || e.type === 'repository.added' || e.type === 'repository.pushed' || e.type === 'publish.finished'
}
