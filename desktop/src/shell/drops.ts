import { useEffect } from 'react'
import { putFile } from '../link/files'
import { useConnection } from '../stores/connection'
import { tell } from './intents'
import { usePromptBar } from './promptStore'

/** The most files that one drop brings in. */
const most = 20

/**
 * Puts files that are dropped on the desktop into the workspace and their paths into the
 * prompt bar; without this the browser would leave the page to show them.
 */
export function useDrops(): void {
  useEffect(() => {
    const over = (e: DragEvent) => {
      e.preventDefault()
      if (e.dataTransfer) e.dataTransfer.dropEffect = useConnection.getState().readOnly ? 'none' : 'copy'
    }
    const drop = (e: DragEvent) => {
      e.preventDefault()
      const { dataTransfer } = e
      if (!dataTransfer || useConnection.getState().readOnly) return
      const files = [...dataTransfer.files]
      const text = dataTransfer.getData('text/uri-list') || dataTransfer.getData('text/plain')
      if (files.length > 0) void bringIn(files)
      else if (text) add(text.split('\n', 1)[0]!.trim().slice(0, 4000))
    }
    window.addEventListener('dragover', over)
    window.addEventListener('drop', drop)
    return () => {
      window.removeEventListener('dragover', over)
      window.removeEventListener('drop', drop)
    }
  }, [])
}

async function bringIn(files: File[]): Promise<void> {
  if (files.length > most) tell(new Error(`Only the first ${most} of ${files.length} files are brought in.`))
  for (const f of files.slice(0, most)) {
    try {
      add(await putFile(f.name, f))
    } catch (e) {
      tell(e)
    }
  }
}

function add(word: string): void {
  const { line, fill } = usePromptBar.getState()
  fill(`${line}${line === '' || line.endsWith(' ') ? '' : ' '}${word} `)
}
