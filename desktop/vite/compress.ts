import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { brotliCompress, constants } from 'node:zlib'
import type { Plugin } from 'vite'

const least = 1024 // bytes; the headers of a smaller answer weigh more than compression would save

/**
 * Writes beside each script and style of a build the same in Brotli at its highest level.
 * That takes a second, too long for an answer, and makes the first visit a tenth smaller
 * than what the host can compress as it answers.
 */
export function compress(): Plugin {
  const brotli = promisify(brotliCompress)
  return {
    name: 'choir-compress',
    apply: 'build',
    async writeBundle({ dir }, bundle) {
      const names = Object.keys(bundle).filter((name) => /\.(js|css|svg)$/.test(name))
      await Promise.all(
        names.map(async (name) => {
          const file = join(dir!, name)
          const b = await readFile(file)
          if (b.length < least) return
          await writeFile(`${file}.br`, await brotli(b, { params: { [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY, [constants.BROTLI_PARAM_SIZE_HINT]: b.length } }))
        }),
      )
    },
  }
}
