import { readFile } from 'node:fs/promises'
import type { Plugin } from 'vite'

/**
 * Vite's watcher drops a change that follows another one within its throttle (5–50 ms), and
 * the browser then keeps the first of the two. So this plugin reads the file again a little
 * after each change, and reports another change when its content is different by then.
 */
export function recheck(delay = 60): Plugin {
  return {
    name: 'choir-recheck',
    apply: 'serve',
    configureServer(server) {
      const waiting = new Map<string, NodeJS.Timeout>()
      // null means that the file is gone, which unlink reports.
      const read = (file: string) => readFile(file, 'latin1').catch(() => null)

      server.watcher.on('change', (file: string) => {
        void read(file).then((then) => {
          clearTimeout(waiting.get(file))
          const again = async () => {
            waiting.delete(file)
            const now = await read(file)
            if (now !== null && now !== then) server.watcher.emit('change', file)
          }
          waiting.set(file, setTimeout(() => void again(), delay))
        })
      })
      server.httpServer?.once('close', () => waiting.forEach((timer) => clearTimeout(timer)))
    },
  }
}
