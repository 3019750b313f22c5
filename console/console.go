// Package console carries the stable UI: pages and assets that frame a desktop
// and that nothing in a computer can change. See docs/console.md.
package console

import (
	"embed"
	"io/fs"
)

//go:embed index.html claim.html stopped.html assets
var files embed.FS

// Files holds index.html (for who is signed in), claim.html (for everybody),
// stopped.html (in their place while nothing can be opened) and
// assets/. CHOIR_NONCE in a page stands for its scripts' nonce.
func Files() fs.FS { return files }
