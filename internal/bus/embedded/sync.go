package embedded

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// syncStore syncs the streams' message files before the server reads them. A process that
// was killed between a write and its sync leaves an event that the next process finds, and
// may acknowledge when the append is repeated; by then it must be on disk. Files without
// unsynced data cost one system call each.
func syncStore(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		if !entry.IsDir() && !strings.HasSuffix(path, ".blk") {
			return nil
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		return errors.Join(f.Sync(), f.Close())
	})
}
