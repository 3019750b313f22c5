import { tmpdir } from 'node:os'
import { join } from 'node:path'
import react from '@vitejs/plugin-react'
import { defineConfig } from 'vite'
import { configDefaults } from 'vitest/config'
import { faced } from './vite/faces'
import { compress } from './vite/compress'
import { recheck } from './vite/recheck'

const env = process.env
const cacheDir = env.CHOIR_VITE_CACHE ?? join(tmpdir(), 'choir-vite')

// Everything that depends on where the shell runs comes from CHOIR_VITE_*:
//   CACHE        a writable directory outside the tree (the tree and node_modules may be read-only)
//   HOSTS        host names the page is served under, comma-separated, beyond *.localhost
//   CLIENT_PORT  the port the browser sees, when a proxy stands before the dev server
export default defineConfig({
  base: '/',
  cacheDir,
  plugins: [react(), recheck(), faced(), compress()],
  // The host replaces this placeholder by a fresh nonce in every page it serves.
  html: { cspNonce: 'CHOIR_NONCE' },
  server: {
    host: '127.0.0.1',
    allowedHosts: ['.localhost', ...(env.CHOIR_VITE_HOSTS?.split(',').filter(Boolean) ?? [])],
    cors: false,
    strictPort: true,
    // The bundled dependencies are in the cache directory. Without this entry a dependency
    // that is requested before its importer was transformed is refused.
    fs: { strict: true, allow: ['.', join(cacheDir, 'deps')], deny: ['.env', '.env.*', '*.{crt,pem,key}', '**/.git/**', '.npmrc'] },
    // Errors are shown by the shell itself (src/shell/SourceError.tsx): Vite's overlay would cover it.
    hmr: { overlay: false, ...(env.CHOIR_VITE_CLIENT_PORT ? { clientPort: Number(env.CHOIR_VITE_CLIENT_PORT) } : {}) },
    watch: { ignored: ['**/dist/**', '**/test/**'] },
  },
  build: {
    target: 'es2022',
    // An inlined asset would need data: URLs in the page's policy for fonts.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 700,
    // What main.tsx imports is one file, however many parts that are loaded later use some of it too. Every app's manifest is requested
    // at the start anyway, and what Welcome shows: in files of their own their headers would weigh more than they do.
    rolldownOptions: {
      output: {
        codeSplitting: {
          groups: [
            { name: 'index', test: /\/src\/main\.tsx$/ },
            { name: 'apps', test: /\/src\/(apps\/[^/]+\/manifest\.tsx?|shell\/tries\.ts)$/ },
          ],
        },
      },
    },
  },
  test: {
    environment: 'happy-dom',
    include: ['test/**/*.test.{ts,tsx}'],
    exclude: [...configDefaults.exclude],
    restoreMocks: true,
  },
})
