import { hashes, sign } from '@noble/ed25519'
import { sha512 } from '@noble/hashes/sha2.js'

// Signs instead of the browser. This module is loaded only where the browser can't sign
// with Ed25519.
hashes.sha512 = sha512

export { sign }
