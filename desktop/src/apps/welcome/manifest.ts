import { Compass } from 'lucide-react'
import { manifest } from '../types'

export default manifest({
  name: 'Welcome',
  icon: Compass,
  entry: () => import('./Welcome'),
  window: { w: 640, h: 648, minW: 320, minH: 300 },
  single: true,
  order: 10,
})
