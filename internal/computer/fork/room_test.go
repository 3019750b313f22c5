package fork

import (
	"archive/tar"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/sandbox/local/untar"
)

// TestForksAtOnceShareTheRoom has two forks unpack 24 MiB each onto a disk with room for 32 above
// what is to stay free: both were told at their beginning that all of it was free. One of them ends
// for want of room, and what is to stay free is not used up.
func TestForksAtOnceShareTheRoom(t *testing.T) {
	const room, each, block = 32 << 20, 24 << 20, 256 << 10
	dir := t.TempDir()
	free := func() (datadir.Room, error) {
		used := int64(0)
		files, err := filepath.Glob(filepath.Join(dir, "*", "*"))
		for _, f := range files {
			if st, err := os.Stat(f); err == nil {
				used += st.Size()
			}
		}
		return datadir.Room{Bytes: datadir.SpaceLow + room - used, Files: 1 << 20}, err
	}
	first, err := free()
	if err != nil {
		t.Fatal(err)
	}
	var both sync.WaitGroup
	errs := make([]error, 2)
	for i := range errs {
		at := filepath.Join(dir, fmt.Sprint(i))
		if err := os.Mkdir(at, 0o700); err != nil {
			t.Fatal(err)
		}
		root, err := os.OpenRoot(at)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		pr, pw := io.Pipe()
		go func() {
			out := tar.NewWriter(pw)
			for n := range each / block {
				err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprint(n), Mode: 0o644, Size: block})
				if err == nil {
					_, err = out.Write(make([]byte, block))
				}
				if err != nil {
					break // the reader has ended
				}
			}
			pw.CloseWithError(out.Close())
		}()
		both.Go(func() {
			files := &whileRoom{from: pr, free: free}
			errs[i] = untar.Unpack(root, files, first.Bytes-datadir.SpaceLow)
			if files.err != nil {
				errs[i] = files.err
			}
			_ = pr.Close() // never fails
		})
	}
	both.Wait()
	if !fault.Is(errs[0], fault.DiskFull) && !fault.Is(errs[1], fault.DiskFull) {
		t.Errorf("they ended with %v and %v", errs[0], errs[1])
	}
	if left, err := free(); err != nil || left.Bytes < datadir.SpaceLow-2*(roomEvery+block) {
		t.Errorf("%d bytes of what is to stay free are used up, %v", datadir.SpaceLow-left.Bytes, err)
	}
}
