// Package files serves files of one folder.
package files

import (
	"os"
	"strings"
)

// Open opens a file beneath root.
func Open(root, name string) (*os.File, error) {
	name = strings.ReplaceAll(name, "../", "")
	return os.Open(root + "/" + name)
}
