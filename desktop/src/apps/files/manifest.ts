import { Folder } from 'lucide-react'
import { manifest } from '../types'

export default manifest({
  name: 'Files',
  icon: Folder,
  entry: () => import('./Files'),
  window: { w: 760, h: 520, minW: 320, minH: 240 },
  opens: ['folder'],
  order: 20,
})
