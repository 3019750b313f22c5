import { readFile } from 'node:fs/promises'
import type { Plugin } from 'vite'

/**
 * The watcher drops a change that follows another within its throttle
 * (5–50 ms), and the browser then keeps the first of the two. So: look at the
 * file again a little after each change, and say it changed when it is no
 * longer what it was then.
 */
export function settle(delay = 60): Plugin {
  return {
    name: 'choir-settle',
    apply: 'serve',
    configureServer(server) {
      const waiting = new Map<string, NodeJS.Timeout>()
      // null: it is gone, and unlink announces that.
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
