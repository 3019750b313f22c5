import { createRoot, type Root } from 'react-dom/client'
import '@fontsource-variable/inter'
import '@fontsource-variable/jetbrains-mono'
import './apps/discover'
import { link } from './link/page'
import { Desktop } from './shell/Desktop'
import { ErrorCard } from './shell/ErrorCard'
import { keptThing } from './stores/kept'
import { useTheme } from './stores/theme'
import { paint } from './theme/theme'

paint(useTheme.getState().theme, document.documentElement)
link.start()

// Marks the document when the desktop could not be rendered, so that the console's page,
// which frames this one, can offer a rewind.
function broken(error: unknown) {
  delete document.documentElement.dataset.choirReady
  reportError(error)
}

// The root is rendered once. After that React refreshes the components by itself; rendering
// replaced ones from here would discard their state.
keptThing<Root>('root', () => {
  const root = createRoot(document.getElementById('root')!)
  root.render(
    <ErrorCard what="The desktop" failed={broken}>
      <Desktop />
    </ErrorCard>,
  )
  return root
})

// When this module is replaced, the root, the stores and the connection stay.
import.meta.hot?.accept()
