import { CircleHelp } from 'lucide-react'
import { manifest } from '../types'

export default manifest({
  name: 'Help',
  icon: CircleHelp,
  entry: () => import('./Help'),
  window: { w: 560, h: 560, minW: 300, minH: 240 },
  single: true,
  order: 90,
})
