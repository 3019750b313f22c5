import { SquareTerminal } from 'lucide-react'
import { manifest } from '../types'

export default manifest({
  name: 'Command',
  icon: SquareTerminal,
  entry: () => import('./Command'),
  window: { w: 720, h: 420, minW: 300, minH: 180 },
  hidden: true,
  opens: ['command'],
})
