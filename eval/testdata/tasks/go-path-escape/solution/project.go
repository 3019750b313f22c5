// Package files serves files of one folder.
package files

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Open opens a file beneath root, wherever names and links lead.
func Open(root, name string) (*os.File, error) {
	if !filepath.IsLocal(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	base, err := filepath.EvalSymlinks(root)
	if err != nil {
		return nil, err
	}
	real, err := filepath.EvalSymlinks(filepath.Join(base, name))
	if err != nil {
		return nil, err
	}
	if real != base && !strings.HasPrefix(real, base+string(filepath.Separator)) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return os.Open(real)
}
