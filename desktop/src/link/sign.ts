// A user's key for the bus: Ed25519, its seed in the text form that NATS gives keys.

const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567'
const seedPrefix = 18 << 3 // S
const userPrefix = 20 << 3 // U
const seedBytes = 32
// The bytes before the 32 bytes of an Ed25519 private key in PKCS #8 (RFC 8410).
const pkcs8 = [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20]

/** Signs the server's nonce with the key of the given seed, in the encoding that the server accepts. */
export async function sign(seed: string, nonce: string): Promise<string> {
  const signature = await ed25519(keyOf(seed), new TextEncoder().encode(nonce))
  return btoa(String.fromCharCode(...signature))
}

/** Signs with the browser's Ed25519; with a library where the browser has none or the page's origin is not secure. */
async function ed25519(key: Uint8Array, message: Uint8Array<ArrayBuffer>): Promise<Uint8Array> {
  const subtle = globalThis.crypto?.subtle as SubtleCrypto | undefined
  if (subtle) {
    try {
      const own = await subtle.importKey('pkcs8', Uint8Array.from([...pkcs8, ...key]), 'Ed25519', false, ['sign'])
      return new Uint8Array(await subtle.sign('Ed25519', own, message))
    } catch (e) {
      if (!(e instanceof DOMException) || e.name !== 'NotSupportedError') throw e
    }
  }
  const library = await import('./ed25519')
  return library.sign(message, key)
}

/** Decodes a user's seed: base32 of two bytes that say what it is, the key, and a checksum. */
export function keyOf(seed: string): Uint8Array {
  const raw = base32(seed)
  const body = raw.subarray(0, -2)
  if (raw.length !== 2 + seedBytes + 2 || checksum(body) !== raw.at(-2)! + raw.at(-1)! * 256) throw new Error('the seed is damaged')
  if ((body[0]! & 0xf8) !== seedPrefix || (((body[0]! & 7) << 5) | (body[1]! >> 3)) !== userPrefix) throw new Error('the seed is not that of a user')
  return body.slice(2)
}

function base32(text: string): Uint8Array {
  const out = []
  let bits = 0
  let value = 0
  for (const c of text) {
    const digit = alphabet.indexOf(c)
    if (digit < 0) throw new Error('the seed is damaged')
    value = ((value << 5) | digit) & 0xfff
    bits += 5
    if (bits >= 8) out.push((value >> (bits -= 8)) & 0xff)
  }
  return Uint8Array.from(out)
}

/** CRC-16/XMODEM. */
function checksum(bytes: Uint8Array): number {
  let crc = 0
  for (const b of bytes) {
    crc ^= b << 8
    for (let i = 0; i < 8; i++) crc = ((crc << 1) ^ (crc & 0x8000 ? 0x1021 : 0)) & 0xffff
  }
  return crc
}
