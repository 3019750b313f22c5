import { History } from 'lucide-react'
import { manifest } from '../types'

export default manifest({
  name: 'Time Travel',
  icon: History,
  entry: () => import('./TimeTravel'),
  window: { w: 900, h: 600, minW: 320, minH: 300 },
  single: true,
  order: 30,
})
