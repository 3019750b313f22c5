package loops

import "choir.dev/choiros/contract"

// BoxID returns a new id of a box; kind is its first letter.
func BoxID(kind string) string { return kind + "-" + contract.Nonce() }
