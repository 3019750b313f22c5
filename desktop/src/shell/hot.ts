import type { CustomEventName, InferCustomEventPayload } from 'vite/types/customEvent.d.ts'

/** Listens to an event of the dev server; in a build, which has none, it never calls back. Returns a function that stops listening. */
export function onHot<T extends CustomEventName>(event: T, take: (payload: InferCustomEventPayload<T>) => void): () => void {
  const hot = import.meta.hot
  if (!hot?.off) return () => {}
  hot.on(event, take)
  return () => hot.off(event, take)
}
