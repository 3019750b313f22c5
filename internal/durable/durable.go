// Package durable makes the entries of a directory survive a power cut: files that were
// made, renamed or removed in a directory are so on disk once the directory itself is
// synced.
package durable

import (
	"errors"
	"os"
)

// SyncDir syncs one of our own directories, which nobody else can replace by a symbolic
// link.
func SyncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
