import type { Event } from '../contract/types'
import { dataOf } from '../contract/types'
import type { DocumentSummary } from '../link/protocol'
import { keptStore } from './kept'

export interface DocumentView extends DocumentSummary {
  author: string
  /** Markdown; null until it has been requested. */
  body: string | null
}

interface DocumentsState {
  documents: Record<string, DocumentView>
  reset(list: DocumentSummary[]): void
  take(e: Event): void
  put(d: DocumentView): void
}

export const useDocuments = keptStore<DocumentsState>('documents', (set) => ({
  documents: {},
  reset: (list) =>
    set((s) => ({
      documents: Object.fromEntries(
        list.map((d) => {
          const old = s.documents[d.document]
          return [d.document, old?.revision === d.revision ? old : { author: '', ...d, body: null }]
        }),
      ),
    })),
  take(e) {
    if (e.type !== 'document.revised') return
    const d = dataOf(e, 'document.revised')
    // An event with a large body has no inline data: its subject names the document, and
    // the app requests it.
    const id = d?.document ?? e.subject?.replace(/^document\//, '')
    if (!id) return
    set((s) => {
      const old = s.documents[id]
      const base = { document: id, title: '', path: '', revision: 0, author: '', ...old }
      const next: DocumentView = d
        ? { ...base, title: d.title, path: d.path, revision: d.revision, author: d.author, body: d.body, time: e.time }
        : { ...base, revision: base.revision + 1, body: null, time: e.time }
      return { documents: { ...s.documents, [id]: next } }
    })
  },
  put: (d) => set((s) => ((s.documents[d.document]?.revision ?? 0) > d.revision ? s : { documents: { ...s.documents, [d.document]: d } })),
}))
