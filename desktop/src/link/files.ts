import { HostError } from './protocol'

/** The largest file that the host accepts from a page, in bytes. */
export const maxFile = 64 << 20

/** Puts a file into the workspace's inbox/ and returns its path, which differs from the name if that was taken. */
export async function putFile(name: string, content: Blob): Promise<string> {
  if (content.size > maxFile) throw new HostError('exhausted', `${name} is larger than the ${maxFile >> 20} MB that a page may bring in.`, 'Use choir add or choir files put.')
  let response: Response
  try {
    response = await fetch(`/_choir/files?name=${encodeURIComponent(name)}`, { method: 'POST', body: content, headers: { 'content-type': 'application/octet-stream' } })
  } catch (e) {
    throw new HostError('unavailable', `${name} was not brought in.`, e instanceof Error ? e.message : String(e))
  }
  const answer = (await response.json().catch(() => ({}))) as { path?: string; code?: string; detail?: string; hint?: string }
  if (!response.ok || typeof answer.path !== 'string') throw new HostError(answer.code ?? 'internal', answer.detail ?? `The answer was ${response.status}.`, answer.hint)
  return answer.path
}
