import { useCheckpoints } from '../stores/checkpoints'
import { useCommands } from '../stores/commands'
import { useConnection } from '../stores/connection'
import { useDocuments } from '../stores/documents'
import { useEvents } from '../stores/events'
import { keptThing } from '../stores/kept'
import { useProposals } from '../stores/proposals'
import { useReviews } from '../stores/reviews'
import { useRuns } from '../stores/runs'
import { useTheme } from '../stores/theme'
import { useToasts } from '../stores/toasts'
import { useWindows } from '../stores/windows'
import { dataOf, type Event } from '../contract/types'
import { connectNats, fetchSession } from './bus'
import { keepThere, recall } from './console'
import { Link, type Listener } from './link'
import { browserShelf } from './outbox'

/** Applies one event of the log to every store it concerns. Events arrive in order and once. */
export function apply(e: Event): void {
  for (const take of takers) {
    try {
      take(e)
    } catch (cause) {
      // A store that can't read an event must neither keep it from the others nor stop the
      // log.
      console.error(`event ${e.sequence} (${e.type}) was not understood`, cause)
    }
  }
}

const takers: ((e: Event) => void)[] = [
  (e) => useEvents.getState().add(e),
  (e) => useWindows.getState().take(e),
  (e) => useRuns.getState().take(e),
  (e) => useReviews.getState().take(e),
  (e) => useCheckpoints.getState().take(e),
  (e) => useDocuments.getState().take(e),
  (e) => useProposals.getState().take(e),
  (e) => useCommands.getState().take(e),
  (e) => useToasts.getState().take(e),
  shellEvents,
]

function shellEvents(e: Event): void {
  const theme = dataOf(e, 'theme.changed')
  if (theme) useTheme.getState().apply(theme.theme)
  const refused = dataOf(e, 'theme.refused')
  if (refused) useTheme.getState().refuse(`${refused.field}: ${refused.reason}`)
  const renamed = dataOf(e, 'computer.renamed')
  if (renamed) useConnection.getState().rename(renamed.name)
}

/** Puts what the link reports into the stores. */
export const listener: Listener = {
  state: (state, detail) => useConnection.getState().moved(state, detail),
  session: (s) => useConnection.getState().met(s),
  snapshot(s) {
    useEvents.getState().clear()
    useWindows.getState().reset(s.windows)
    useRuns.getState().reset(s.runs)
    useCheckpoints.getState().reset(s.checkpoints)
    useDocuments.getState().reset(s.documents)
    useProposals.getState().reset()
    if (s.theme) useTheme.getState().apply(s.theme)
    useConnection.getState().saw(s)
  },
  event: (e) => apply(e),
  tokens: (run, text) => useRuns.getState().tokens(run, text),
  waiting: (queued) => useConnection.setState({ queued, waiting: queued.length }),
  refused(action, e) {
    useWindows.getState().forget(action.id)
    useToasts.getState().say('danger', e.message, e.hint)
  },
}

/** What the console kept of the page before this one. */
export const kept = keptThing('recalled', () => recall())

/** The page's link; there is one for the page's whole life, whatever code is replaced. */
export const link = keptThing(
  'link',
  () =>
    new Link(
      {
        connect: connectNats,
        session: fetchSession,
        // An earlier page may have left its queue with the console only, if its origin was
        // another one.
        shelf: async (cid) => browserShelf(`choir.outbox.${cid}`, (await kept).outbox, (id, value) => keepThere('outbox', value, id)),
      },
      listener,
    ),
)
link.listener = listener

useWindows.setState({
  post: (type, data, id) => {
    // The outbox keeps it; a refusal is reported to the listener.
    link.act(type, data, { id, subject: `window/${data.window}` }).then(
      () => useWindows.getState().forget(id),
      () => {},
    )
  },
})
