package process_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/process"
)

// TestALockThatIsGivenUpIsFree shows that a lock that was released is free even while a child that
// is being started holds its descriptor.
func TestALockThatIsGivenUpIsFree(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	lock := func() (*os.File, error) {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		return f, unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	f, err := lock()
	if err != nil {
		t.Fatal(err)
	}
	child, err := unix.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(child)
	if err := process.Unlock(f); err != nil {
		t.Fatal(err)
	}
	if f, err = lock(); err != nil {
		t.Errorf("it is still held: %v", err)
	}
	_ = f.Close()
}
