// Package durable makes the names in a directory survive a power cut: what was made,
// renamed or removed in one is on the disk once the directory itself is synced.
package durable

import (
	"errors"
	"os"
)

// SyncDir syncs a directory of our own, which nobody else can put a link in place of.
func SyncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
