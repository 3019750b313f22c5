// Serves a page the way the control plane does: with the nonce filled in and the policy
// sent, from a build (a folder) or from a dev server.

import { randomBytes } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import http from 'node:http'
import net from 'node:net'
import { extname, join, normalize } from 'node:path'

const types = { '.html': 'text/html; charset=utf-8', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml', '.woff2': 'font/woff2', '.txt': 'text/plain' }

export const policy = (nonce) =>
  [`default-src 'self'`, `script-src 'self' 'nonce-${nonce}'`, `style-src 'self' 'nonce-${nonce}'`, `img-src 'self' data: blob:`, `font-src 'self'`, `connect-src 'self'`, `object-src 'none'`, `frame-src 'none'`, `worker-src 'none'`, `base-uri 'none'`, `form-action 'none'`].join('; ')

/** Resolves to {url, close()}. `from` is a folder or the port of a dev server. */
export async function serve(from) {
  const server = http.createServer(async (req, res) => {
    const nonce = randomBytes(18).toString('base64')
    const page = (body) => {
      res.writeHead(200, { 'content-type': types['.html'], 'content-security-policy': policy(nonce), 'cache-control': 'no-store' })
      res.end(body.replaceAll('CHOIR_NONCE', nonce))
    }
    if (typeof from === 'number') {
      const up = http.request({ host: '127.0.0.1', port: from, path: req.url, method: req.method, headers: { ...req.headers, 'accept-encoding': 'identity', 'if-none-match': '' } }, (r) => {
        if (!String(r.headers['content-type']).startsWith('text/html')) {
          res.writeHead(r.statusCode, r.headers)
          r.pipe(res)
          return
        }
        const parts = []
        r.on('data', (c) => parts.push(c)).on('end', () => page(Buffer.concat(parts).toString()))
      })
      up.on('error', (e) => res.writeHead(502).end(String(e)))
      req.pipe(up)
      return
    }
    const name = new URL(req.url, 'http://x').pathname
    try {
      const body = await readFile(join(from, normalize(name === '/' ? '/index.html' : name)))
      if (name === '/') page(body.toString())
      else res.writeHead(200, { 'content-type': types[extname(name)] ?? 'application/octet-stream' }).end(body)
    } catch {
      res.writeHead(404).end()
    }
  })
  server.on('upgrade', (req, socket, head) => {
    if (typeof from !== 'number') return socket.destroy()
    const up = net.connect(from, '127.0.0.1', () => {
      up.write(`${req.method} ${req.url} HTTP/1.1\r\n${req.rawHeaders.reduce((s, h, i) => s + (i % 2 ? `: ${h}\r\n` : h), '')}\r\n`)
      up.write(head)
      socket.pipe(up).pipe(socket)
    })
    up.on('error', () => socket.destroy())
    socket.on('error', () => up.destroy())
  })
  await new Promise((r) => server.listen(0, '127.0.0.1', r))
  return { url: `http://studio.desk.choir.localhost:${server.address().port}`, port: server.address().port, close: () => (server.closeAllConnections(), new Promise((r) => server.close(r))) }
}
