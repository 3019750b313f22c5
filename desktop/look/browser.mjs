import { chromium } from 'playwright-core'
import { NatsPeer } from './nats.mjs'
import { cid } from './world.mjs'

export const launch = () =>
  chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync', '--host-resolver-rules=MAP *.localhost 127.0.0.1'],
  })

/** Connects a page to a simulated computer; errors in the page are collected in the returned list. */
export async function connect(page, world) {
  const faults = []
  page.on('pageerror', (e) => faults.push(`error: ${e.message}`))
  page.on('console', (m) => ['error', 'warning'].includes(m.type()) && faults.push(`${m.type()}: ${m.text()}`))
  await page.route('**/_choir/session', (r) => r.fulfill({ json: world.session() }))
  await page.routeWebSocket('**/_choir/nats', (ws) => {
    const peer = new NatsPeer((bytes) => ws.send(bytes), (subject, body) => world.answer(subject, body))
    world.peers.add(peer)
    const tick = setInterval(() => peer.publish(`live.${cid}.tick`, { sequence: world.log.length }), 1000)
    ws.onMessage((m) => void peer.take(m))
    ws.onClose(() => {
      clearInterval(tick)
      world.peers.delete(peer)
    })
    world.hangUp = () => ws.close()
  })
  return faults
}

export async function open(page, url) {
  await page.goto(url)
  await page.waitForSelector('html[data-choir-ready]')
  await page.waitForSelector('[data-testid="connection"][data-state="online"]')
}
