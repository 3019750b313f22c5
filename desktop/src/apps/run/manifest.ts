import { ScrollText } from 'lucide-react'
import { manifest } from '../types'

export default manifest({
  name: 'Run',
  icon: ScrollText,
  entry: () => import('./Run'),
  window: { w: 680, h: 660, minW: 320, minH: 260 },
  hidden: true,
  opens: ['run'],
})
