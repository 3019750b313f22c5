package hostfs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/sandbox/local/hostfs"
	"choir.dev/choiros/internal/sandbox/sandboxtest"
)

func measured(t *testing.T, d *hostfs.Dir) hostfs.Size {
	t.Helper()
	var tally hostfs.Tally
	if err := tally.Add(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	return tally.Size
}

// TestMeasure shows that each file counts once, and that no link is followed.
func TestMeasure(t *testing.T) {
	p := newPlace(t)
	big := filepath.Join(p.make("d", 0o755), "big")
	for _, err := range []error{
		os.WriteFile(big, make([]byte, 1<<20), 0o644), os.Link(big, filepath.Join(p.path, "again")),
		os.Symlink("/usr", filepath.Join(p.path, "out")), os.Symlink(".", filepath.Join(p.path, "loop")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := measured(t, p.dir); got.Inodes != 4 || got.Bytes < 1<<20 || got.Bytes > 1<<20+64<<10 {
		t.Errorf("counted %+v", got)
	}
}

// TestMeasureDeepAndClosed shows that neither depth nor modes hide anything, and that measuring
// leaves the modes unchanged.
func TestMeasureDeepAndClosed(t *testing.T) {
	sandboxtest.AsUser(t, func(t *testing.T) {
		p := newPlace(t)
		p.make("deep", 0o755)
		fd, err := unix.Open(filepath.Join(p.path, "deep"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		const depth = 3000
		for i := 0; i < depth && err == nil; i++ {
			if err = unix.Mkdirat(fd, "d", 0o755); err == nil {
				var next int
				next, err = unix.Openat(fd, "d", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
				if i%100 == 50 { // so that the way back up leads through closed directories
					if err := unix.Chmod(fmt.Sprint("/proc/self/fd/", fd), 0); err != nil {
						t.Fatal(err)
					}
				}
				_ = unix.Close(fd)
				fd = next
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		file, err := unix.Openat(fd, "file", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = unix.Write(file, make([]byte, 1<<20))
		if _, _ = unix.Close(file), unix.Close(fd); err != nil {
			t.Fatal(err)
		}
		p.make("shut/inner", 0)
		p.make("shut", 0)
		t.Cleanup(func() {
			if err := p.dirRemove("deep"); err != nil {
				t.Error(err)
			}
		})
		want := int64(1 + depth + 1 + 2)
		if got := measured(t, p.dir); got.Inodes != want || got.Bytes < 1<<20 {
			t.Errorf("counted %+v, not %d", got, want)
		}
		if info, err := os.Stat(filepath.Join(p.path, "shut")); err != nil || info.Mode().Perm() != 0 {
			t.Errorf("measuring changed a mode: %v, %v", info, err)
		}
	})
}

// TestMeasureEnds shows that the counting stops at a limit.
func TestMeasureEnds(t *testing.T) {
	p := newPlace(t)
	for i := range 100 {
		p.make(fmt.Sprint("d/", i), 0o755)
		p.write(fmt.Sprint("d/", i, "/f"))
	}
	tally := hostfs.Tally{Limit: 20}
	if err := tally.Add(t.Context(), p.dir); err != nil || tally.Inodes <= 20 {
		t.Errorf("%+v, %v", tally.Size, err)
	}
}

func BenchmarkMeasure(b *testing.B) { // of 10,000 files
	dir := b.TempDir()
	for i := range 10000 {
		sub := filepath.Join(dir, fmt.Sprint(i%100))
		if err := os.MkdirAll(sub, 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(sub, fmt.Sprint(i)), []byte("x"), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	d, err := hostfs.Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	b.ResetTimer()
	for range b.N {
		var t hostfs.Tally
		if err := t.Add(b.Context(), d); err != nil {
			b.Fatal(err)
		}
	}
}
