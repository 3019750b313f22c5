// Package console carries the stable UI: pages and assets that frame a desktop
// and that nothing in a computer can change. See docs/console.md.
package console

import (
	"embed"
	"io/fs"
)

//go:embed index.html claim.html assets
var files embed.FS

// Files holds index.html (for who is signed in), claim.html (for everybody) and
// assets/. CHOIR_NONCE in a page stands for its scripts' nonce.
func Files() fs.FS { return files }
