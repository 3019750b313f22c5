package disk_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/blob"
	"choir.dev/choiros/internal/blob/blobtest"
	"choir.dev/choiros/internal/blob/disk"
)

func open(t testing.TB, dir string, q blob.Quota) *disk.Store {
	t.Helper()
	d, err := disk.Open(dir, q)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func file(dir string, cid contract.CID, ref contract.BlobRef) string {
	return filepath.Join(dir, string(cid), ref.Hex()[:2], ref.Hex())
}

// files lists everything below dir that is not a directory.
func files(t testing.TB, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			out = append(out, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestStore(t *testing.T) {
	blobtest.Run(t, func(t testing.TB) blobtest.Backend {
		dir := t.TempDir()
		return blobtest.Backend{
			Open: func(t testing.TB, q blob.Quota) blob.Store { return open(t, dir, q) },
			Overwrite: func(t testing.TB, cid contract.CID, ref contract.BlobRef, content []byte) {
				if err := os.WriteFile(file(dir, cid, ref), content, 0o600); err != nil {
					t.Fatal(err)
				}
			},
			Age: func(t testing.TB, cid contract.CID, ref contract.BlobRef, by time.Duration) {
				old := time.Now().Add(-by)
				if err := os.Chtimes(file(dir, cid, ref), old, old); err != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Fatal(err)
				}
			},
			Count: func(t testing.TB) int { return len(files(t, dir)) },
		}
	})
}

func TestAFileIsItsOwnersAlone(t *testing.T) {
	dir := t.TempDir()
	cid := contract.NewCID()
	ref, _, err := open(t, dir, blob.Quota{}).Put(t.Context(), cid, strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file(dir, cid, ref)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}
