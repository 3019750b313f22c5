import { ChartGantt } from 'lucide-react'
import { manifest } from '../types'

export default manifest({
  name: 'Trace',
  icon: ChartGantt,
  entry: () => import('./Trace'),
  window: { w: 1060, h: 640, minW: 320, minH: 280 },
  opens: ['trace'],
  order: 35,
})
