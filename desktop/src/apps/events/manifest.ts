import { Activity } from 'lucide-react'
import { manifest } from '../types'

export default manifest({
  name: 'Events',
  icon: Activity,
  entry: () => import('./Events'),
  window: { w: 760, h: 520, minW: 320, minH: 240 },
  single: true,
  order: 40,
})
