package chaos_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// disk is a disk that records, in order, every write and every flush that it is sent, so that the
// state that a power cut leaves can be made for any instant. It is a file in user space under a
// loop device and ext4.
type disk struct {
	fs.Inode
	dir  string
	base string // the image before the first record
	size int64

	unmount func() // ends the file system, before its images are mounted; the end of the test does otherwise

	mu      sync.Mutex
	image   *os.File // the present image
	journal *os.File // the data of the writes, one after another
	used    int64
	records []record
}

// record is a write, or a flush if its length is 0.
type record struct {
	at     int64 // in the image
	length int
	data   int64 // in the journal
}

// sector is the number of bytes that a disk writes as a whole or not at all.
const sector = 512

// newDisk makes an ext4 file system on a recorded disk and mounts it at dir/mnt, until the end of
// the test.
func newDisk(t *testing.T, size int64) *disk {
	t.Helper()
	return newDiskOf(t, size, "mkfs.ext4", "-q", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0")
}

// newDiskOf is newDisk with a file system that a program makes.
func newDiskOf(t *testing.T, size int64, mkfs ...string) *disk {
	t.Helper()
	dir := t.TempDir()
	d := &disk{dir: dir, base: filepath.Join(dir, "base.img"), size: size}
	for _, name := range []string{"mnt", "fuse"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	file := func(name string) *os.File {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	if err := file("base.img").Truncate(size); err != nil {
		t.Fatal(err)
	}
	run(t, append(mkfs, d.base)...)
	run(t, "cp", "--sparse=always", d.base, filepath.Join(dir, "now.img"))
	var err error
	if d.image, err = os.OpenFile(filepath.Join(dir, "now.img"), os.O_RDWR, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.image.Close() })
	d.journal = file("journal")
	server, err := fs.Mount(filepath.Join(dir, "fuse"), &folder{file: d}, &fs.Options{MountOptions: fuse.MountOptions{
		DirectMountStrict: true, FsName: "recorded-disk", Name: "choirtest", DisableXAttrs: true}})
	if err != nil {
		t.Fatalf("mount the recorded disk: %v", err)
	}
	t.Cleanup(func() {
		if err := server.Unmount(); err != nil {
			t.Errorf("unmount the recorded disk: %v", err)
		}
	})
	d.unmount = mount(t, filepath.Join(dir, "fuse", "disk"), d.path())
	return d
}

// path returns where the disk's file system is mounted.
func (d *disk) path() string { return filepath.Join(d.dir, "mnt") }

// now returns the number of records so far, which serves as the present instant.
func (d *disk) now() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.records)
}

// failure makes the image that a power cut at an instant leaves: everything that was flushed, and
// of what came after it each sector or not, drawn with dice. A disk that lies has acknowledged its
// last flushes without doing them.
func (d *disk) failure(t *testing.T, at, lies int, dice *rand.Rand, image string) {
	t.Helper()
	d.mu.Lock()
	records := d.records[:at]
	d.mu.Unlock()
	flushed := 0
	for i := at - 1; i >= 0; i-- {
		if records[i].length == 0 {
			if lies--; lies < 0 {
				flushed = i
				break
			}
		}
	}
	run(t, "cp", "--sparse=always", d.base, image)
	f, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1<<20)
	for i, r := range records {
		for done := 0; done < r.length; {
			n := min(r.length-done, len(buf))
			if _, err := d.journal.ReadAt(buf[:n], r.data+int64(done)); err != nil {
				t.Fatal(err)
			}
			if i < flushed {
				if _, err := f.WriteAt(buf[:n], r.at+int64(done)); err != nil {
					t.Fatal(err)
				}
			} else if err := scatter(f, buf[:n], r.at+int64(done), dice); err != nil {
				t.Fatal(err)
			}
			done += n
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// scatter writes a part of what was not flushed: all, nothing, or some sectors.
func scatter(f *os.File, b []byte, at int64, dice *rand.Rand) error {
	switch dice.IntN(3) {
	case 0:
		return nil
	case 1:
		_, err := f.WriteAt(b, at)
		return err
	}
	for o := 0; o < len(b); o += sector {
		if dice.IntN(2) == 0 {
			if _, err := f.WriteAt(b[o:min(o+sector, len(b))], at+int64(o)); err != nil {
				return err
			}
		}
	}
	return nil
}

// folder is the directory that contains the disk.
type folder struct {
	fs.Inode
	file *disk
}

func (f *folder) OnAdd(ctx context.Context) {
	f.AddChild("disk", f.NewPersistentInode(ctx, f.file, fs.StableAttr{Mode: syscall.S_IFREG, Ino: 2}), false)
}

// Getattr implements fs.NodeGetattrer.
func (d *disk) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode, out.Size, out.Nlink = syscall.S_IFREG|0o600, uint64(d.size), 1
	return 0
}

// Open implements fs.NodeOpener.
func (d *disk) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_KEEP_CACHE, 0
}

// Read implements fs.NodeReader.
func (d *disk) Read(_ context.Context, _ fs.FileHandle, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	n, err := d.image.ReadAt(dest, off)
	if err != nil && err != io.EOF {
		return nil, syscall.EIO
	}
	return fuse.ReadResultData(dest[:n]), 0
}

// Write implements fs.NodeWriter.
func (d *disk) Write(_ context.Context, _ fs.FileHandle, data []byte, off int64) (uint32, syscall.Errno) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.image.WriteAt(data, off); err != nil {
		return 0, syscall.EIO
	}
	if _, err := d.journal.WriteAt(data, d.used); err != nil {
		return 0, syscall.EIO
	}
	d.records = append(d.records, record{off, len(data), d.used})
	d.used += int64(len(data))
	return uint32(len(data)), 0
}

// Fsync implements fs.NodeFsyncer.
func (d *disk) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.records = append(d.records, record{})
	return 0
}

// mount mounts an image and unmounts it at the end of the test.
func mount(t *testing.T, image, at string) (unmount func()) {
	t.Helper()
	unmount, err := tryMount(t, image, at)
	if err != nil {
		t.Fatal(err)
	}
	return unmount
}

func tryMount(t *testing.T, image, at string) (unmount func(), err error) {
	t.Helper()
	if out, err := exec.Command("mount", "-o", "loop,noatime", image, at).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("mount: %w: %s", err, out)
	}
	var once sync.Once
	unmount = func() {
		once.Do(func() {
			if out, err := exec.Command("umount", at).CombinedOutput(); err != nil {
				t.Errorf("umount %s: %v\n%s", at, err, out)
				_ = exec.Command("umount", "-l", at).Run()
			}
		})
	}
	t.Cleanup(unmount)
	return unmount, nil
}

func run(t *testing.T, argv ...string) {
	t.Helper()
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		t.Fatal(fmt.Errorf("%v: %w\n%s", argv, err, out))
	}
}
