import { HostError } from './protocol'

/** The largest file that the host accepts from a page, in bytes. */
export const maxFile = 64 << 20

interface Putting {
  /** The folder of the workspace that it goes into; without it, inbox. */
  folder?: string
  signal?: AbortSignal
  /** Is told how many bytes have left. */
  sent?: (bytes: number) => void
}

/** Puts a file into the workspace and returns its path, whose name differs if the name was taken. */
export function putFile(name: string, content: Blob, { folder, signal, sent }: Putting = {}): Promise<string> {
  const at = new URLSearchParams({ name, ...(folder === undefined ? {} : { folder }) })
  return new Promise((resolve, reject) => {
    if (content.size > maxFile) return reject(new HostError('exhausted', `${name} is larger than the ${maxFile >> 20} MB that a page may bring in.`, 'Use choir files put.'))
    // fetch does not say how much of a body has left.
    const x = new XMLHttpRequest()
    const lost = (code: string, why: string) => () => reject(new HostError(code, why, 'What came in before is safe.'))
    x.open('POST', `/_choir/files?${at}`)
    x.setRequestHeader('content-type', 'application/octet-stream')
    x.responseType = 'json'
    x.upload.onprogress = (e) => sent?.(e.loaded)
    x.onerror = lost('unavailable', 'The connection was lost.')
    x.onabort = lost('cancelled', 'It was cancelled.')
    x.onload = () => {
      const answer = (x.response ?? {}) as { path?: string; code?: string; detail?: string; hint?: string }
      if (x.status === 200 && typeof answer.path === 'string') resolve(answer.path)
      else reject(new HostError(answer.code ?? (x.status >= 500 ? 'unavailable' : 'internal'), answer.detail ?? `The answer was ${x.status}.`, answer.hint))
    }
    signal?.addEventListener('abort', () => x.abort())
    if (signal?.aborted) x.onabort(new ProgressEvent('abort'))
    else x.send(content)
  })
}
