package hostfs_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/sandbox/local/hostfs"
	"choir.dev/choiros/internal/sandbox/sandboxtest"
)

func TestMain(m *testing.M) { sandboxtest.Main(m) }

// place is a computer's directory with a tree in boxes/x.
type place struct {
	t    *testing.T
	path string
	dir  *hostfs.Dir
}

func newPlace(t *testing.T) *place {
	t.Helper()
	p := &place{t: t, path: t.TempDir()}
	var err error
	if p.dir, err = hostfs.Open(p.path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.dir.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func (p *place) make(name string, mode fs.FileMode) string {
	p.t.Helper()
	full := filepath.Join(p.path, name)
	if err := os.MkdirAll(full, 0o755); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = os.Chmod(full, 0o755) }) // so that cleaning up works after a failure
	if err := os.Chmod(full, mode); err != nil {
		p.t.Fatal(err)
	}
	return full
}

func (p *place) write(name string) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.path, name), []byte("x"), 0o400); err != nil {
		p.t.Fatal(err)
	}
}

// remove removes boxes/x and waits until nothing of it is left.
func (p *place) remove() {
	p.t.Helper()
	r, err := hostfs.NewRemover(p.dir, "removing", func(err error) { p.t.Error(err) })
	if err != nil {
		p.t.Fatal(err)
	}
	defer r.Close()
	if err := r.Take(p.dir, "boxes/x"); err != nil {
		p.t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(p.path, "boxes/x")); !errors.Is(err, fs.ErrNotExist) {
		p.t.Errorf("it has not left its place: %v", err)
	}
	p.gone()
}

func (p *place) gone() {
	p.t.Helper()
	sandboxtest.Eventually(p.t, time.Minute, "nothing is left", func() bool {
		left, err := os.ReadDir(filepath.Join(p.path, "removing"))
		return err == nil && len(left) == 0 || p.t.Failed()
	})
}

// TestRemoveClosed shows that no modes prevent a removal.
func TestRemoveClosed(t *testing.T) {
	sandboxtest.AsUser(t, func(t *testing.T) {
		p := newPlace(t)
		p.make("boxes/x/open/inner", 0o755)
		p.write("boxes/x/open/inner/file")
		p.make("boxes/x/readonly/inner", 0o755)
		p.write("boxes/x/readonly/file")
		p.write("boxes/x/readonly/inner/file")
		p.make("boxes/x/shut/inner", 0o755)
		p.write("boxes/x/shut/inner/file")
		p.make("boxes/x/"+strings.Repeat("n", 255)+"/"+strings.Repeat("m", 255), 0o755)
		p.make("boxes/x/shut/inner", 0)
		p.make("boxes/x/readonly/inner", 0o555)
		p.make("boxes/x/readonly", 0o555)
		p.make("boxes/x/shut", 0)
		p.make("boxes/x", 0o555)
		p.remove()
	})
}

// TestRemoveDeep shows that a chain of folders as deep as anybody could make it is removed with few
// descriptors, also after an interruption.
func TestRemoveDeep(t *testing.T) {
	p := newDeepPlace(t, 22_000)
	r, err := hostfs.NewRemover(p.dir, "removing", func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.Take(p.dir, "boxes/x"), r.Close()); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Join(p.path, "removing")); err != nil || len(left) == 0 {
		t.Fatalf("the removal was not interrupted: %v, %v", left, err)
	}
	r, err = hostfs.NewRemover(p.dir, "removing", func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p.gone()
}

// TestRemoveWithFewDescriptors shows that not every folder of a deep chain is open at once.
func TestRemoveWithFewDescriptors(t *testing.T) {
	p := newDeepPlace(t, 1000)
	r, err := hostfs.NewRemover(p.dir, "removing", func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.Take(p.dir, "boxes/x"); err != nil {
		t.Fatal(err)
	}
	p.gone()
}

// newDeepPlace makes a chain of folders in boxes/x and leaves this process few descriptors.
func newDeepPlace(t *testing.T, depth int) *place {
	t.Helper()
	p := newPlace(t)
	p.make("boxes/x", 0o755)
	fd, err := unix.Open(filepath.Join(p.path, "boxes/x"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for i := 0; i < depth && err == nil; i++ {
		if err = unix.Mkdirat(fd, "d", 0o755); err == nil {
			var next int
			next, err = unix.Openat(fd, "d", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			_ = unix.Close(fd)
			fd = next
		}
	}
	_ = unix.Close(fd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // a failed test must not leave the chain for others to remove
		if err := p.dirRemove("boxes", "removing"); err != nil {
			t.Error(err)
		}
	})
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 128, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
			t.Error(err)
		}
	})
	return p
}

// dirRemove removes what a failed test left.
func (p *place) dirRemove(names ...string) error {
	var errs []error
	for _, n := range names {
		errs = append(errs, p.dir.RemoveAll(context.Background(), n))
	}
	return errors.Join(errs...)
}

// TestRemoveFollowsNothing shows that links are removed and their targets stay.
func TestRemoveFollowsNothing(t *testing.T) {
	p := newPlace(t)
	p.make("keys", 0o755)
	p.write("keys/master")
	p.make("boxes/x/in", 0o755)
	for i, target := range []string{filepath.Join(p.path, "keys"), "../../../keys", "/", "loop"} {
		if err := os.Symlink(target, filepath.Join(p.path, "boxes/x/in", []string{"abs", "rel", "root", "loop"}[i])); err != nil {
			t.Fatal(err)
		}
	}
	p.remove()
	if _, err := os.Stat(filepath.Join(p.path, "keys/master")); err != nil {
		t.Error(err)
	}
}

// TestRemoveManyFiles shows that a folder with very many files is removed too, if slowly.
func TestRemoveManyFiles(t *testing.T) {
	p := newPlace(t)
	for i := range 50 {
		dir := fmt.Sprint("boxes/x/", i)
		p.make(dir, 0o755)
		for j := range 200 {
			p.write(fmt.Sprint(dir, "/", j))
		}
	}
	p.remove()
}

// TestWhatCanNotBeRemovedIsTold shows that something that can't be removed is reported, has left
// its place all the same, and does not prevent the removal of the rest.
func TestWhatCanNotBeRemovedIsTold(t *testing.T) {
	if os.Geteuid() == 0 && os.Getenv("CHOIR_TEST_FOREIGN") == "" {
		// This belongs to another user, so an ordinary user can't remove it.
		foreign, err := os.MkdirTemp("", "choir-foreign-")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(foreign)
		for _, err := range []error{os.Chmod(foreign, 0o777), os.MkdirAll(filepath.Join(foreign, "boxes/x/other"), 0o755),
			os.WriteFile(filepath.Join(foreign, "boxes/x/other/file"), nil, 0o644),
			os.Chmod(filepath.Join(foreign, "boxes"), 0o777), os.Chmod(filepath.Join(foreign, "boxes/x"), 0o777)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		sandboxtest.AsUser(t, func(*testing.T) {}, "CHOIR_TEST_FOREIGN="+foreign)
		return
	}
	foreign := os.Getenv("CHOIR_TEST_FOREIGN")
	if foreign == "" {
		t.Skip("needs root, to make what another user can't remove")
	}
	dir, err := hostfs.Open(foreign)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := os.WriteFile(filepath.Join(foreign, "boxes/own"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	told := make(chan error, 8)
	r, err := hostfs.NewRemover(dir, "removing", func(err error) { told <- err })
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := errors.Join(r.Take(dir, "boxes/x"), r.Take(dir, "boxes/own")); err != nil {
		t.Error(err)
	}
	select {
	case err := <-told:
		if !strings.Contains(err.Error(), "other") {
			t.Errorf("what stays is not named: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("what can't be removed is not told")
	}
	sandboxtest.Eventually(t, 10*time.Second, "the rest is removed", func() bool {
		left, err := dir.ReadDir("removing")
		return err == nil && len(left) == 1 && len(r.Stuck()) == 1
	})
	if left, err := dir.ReadDir("boxes"); err != nil || len(left) != 0 {
		t.Errorf("what was taken is still in its place: %v, %v", left, err)
	}
}
