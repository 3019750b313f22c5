import { hashes, sign } from '@noble/ed25519'
import { sha512 } from '@noble/hashes/sha2.js'

// In the browser's place: loaded where that can't sign.
hashes.sha512 = sha512

export { sign }
