import type { CustomEventName, InferCustomEventPayload } from 'vite/types/customEvent.d.ts'

/** Listens to the dev server; without one (a build) it never calls back. Returns how to stop. */
export function onHot<T extends CustomEventName>(event: T, take: (payload: InferCustomEventPayload<T>) => void): () => void {
  const hot = import.meta.hot
  if (!hot?.off) return () => {}
  hot.on(event, take)
  return () => hot.off(event, take)
}
