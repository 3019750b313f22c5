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

// A card in the desktop's place is no desktop: whoever frames the page is to know.
function broken(error: unknown) {
  delete document.documentElement.dataset.choirReady
  reportError(error)
}

// Rendered once: after that React refreshes the components by itself, and to
// render replaced ones from here would throw their state away.
keptThing<Root>('root', () => {
  const root = createRoot(document.getElementById('root')!)
  root.render(
    <ErrorCard what="The desktop" failed={broken}>
      <Desktop />
    </ErrorCard>,
  )
  return root
})

// Replacing this module keeps the root, the stores and the connection.
import.meta.hot?.accept()
