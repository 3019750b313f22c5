import { ScrollText } from 'lucide-react'
import { manifest } from '../types'

export default manifest({
  name: 'Kept',
  icon: ScrollText,
  entry: () => import('./Kept'),
  window: { w: 580, h: 520, minW: 300, minH: 240 },
  single: true,
  order: 60,
})
