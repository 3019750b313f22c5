package datadir_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/fault"
)

// TestReserve shows that an operation that finds the disk full is repeated after the reserve is
// released, that nothing further is accepted then, and that other failures are not repeated.
func TestReserve(t *testing.T) {
	t.Parallel()
	d, err := datadir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	const size = 8 << 20
	healthy := func() error { return nil }
	r, err := datadir.OpenReserve(d, size, healthy, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var st unix.Stat_t
	if err := unix.Stat(d.Path("reserve"), &st); err != nil || st.Blocks*512 < size {
		t.Errorf("the reserve holds %d bytes of disk (%v); want %d", st.Blocks*512, err, size)
	}
	other := errors.New("not the disk")
	tries := 0
	if err := r.RetryWithRoom(t.Context(), func() error { tries++; return other }); !errors.Is(err, other) || tries != 1 {
		t.Errorf("what failed for another reason was tried %d times: %v", tries, err)
	}
	if err := r.Check("op"); err != nil {
		t.Errorf("with the reserve held nothing is taken in: %v", err)
	}
	taken := r.Taking("op", strings.NewReader("all of it"))
	some := make([]byte, 3)
	if n, err := taken.Read(some); n != 3 || err != nil {
		t.Errorf("with the reserve held %d bytes are taken in: %v", n, err)
	}
	tries = 0
	err = r.RetryWithRoom(t.Context(), func() error {
		if tries++; unix.Stat(d.Path("reserve"), &st) == nil {
			return unix.ENOSPC
		}
		if err := r.Check("op"); !fault.Is(err, fault.DiskFull) {
			t.Errorf("while the log lives in its reserve something is taken in: %v", err)
		}
		if n, err := taken.Read(some); n != 0 || !fault.Is(err, fault.DiskFull) {
			t.Errorf("what was begun before goes on taking the log's reserve: %d bytes, %v", n, err)
		}
		return nil
	})
	if err != nil || tries != 2 {
		t.Errorf("after %d tries: %v", tries, err)
	}
	if err := d.ReleaseReserve(); err != nil {
		t.Errorf("a reserve that is gone is given back: %v", err)
	}
}
