package disk

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/blob"
	"choir.dev/choiros/internal/crash"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/durable"
	"choir.dev/choiros/internal/fault"
)

// tempDir holds the files that are being written, inside each computer's folder.
const tempDir = ".tmp"

// Store is a blob.Store that keeps blobs as files DIR/{cid}/ab/{sha256}. Only one process
// may have a directory open.
type Store struct {
	dir   string
	quota blob.Quota
	step  func(point string) // a test hook that is called at each point where a crash leaves a different state

	mu        sync.Mutex
	computers map[contract.CID]*computer
}

// computer is what is known of one computer's folder.
type computer struct {
	mu    sync.Mutex // held while a blob appears or disappears
	known bool       // whether used has been counted
	used  int64      // stored and reserved bytes
}

// Open opens the store in dir, which it creates if needed, and removes files that an
// earlier process left half-written.
func Open(dir string, quota blob.Quota) (*Store, error) {
	const op = "disk.Open"
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, diskFault(op, err)
	}
	leftovers, err := filepath.Glob(filepath.Join(dir, "*", tempDir, "*"))
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	for _, p := range leftovers {
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, diskFault(op, err)
		}
	}
	return &Store{dir: dir, quota: quota, step: func(string) {}, computers: map[contract.CID]*computer{}}, nil
}

func (d *Store) folder(cid contract.CID) string { return filepath.Join(d.dir, string(cid)) }

func (d *Store) path(cid contract.CID, ref contract.BlobRef) string {
	hex := ref.Hex()
	return filepath.Join(d.folder(cid), hex[:2], hex)
}

// computer returns a computer's entry with its usage counted.
func (d *Store) computer(cid contract.CID) (*computer, error) {
	d.mu.Lock()
	c := d.computers[cid]
	if c == nil {
		c = &computer{}
		d.computers[cid] = c
	}
	d.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known {
		return c, nil
	}
	err := d.each(cid, func(_ contract.BlobRef, _ string, info fs.FileInfo) error {
		c.used += info.Size()
		return nil
	})
	if err != nil {
		c.used = 0
		return nil, err
	}
	c.known = true
	return c, nil
}

// each calls f for every blob of a computer.
func (d *Store) each(cid contract.CID, f func(contract.BlobRef, string, fs.FileInfo) error) error {
	shards, err := os.ReadDir(d.folder(cid))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, shard := range shards {
		if !shard.IsDir() || shard.Name() == tempDir {
			continue
		}
		files, err := os.ReadDir(filepath.Join(d.folder(cid), shard.Name()))
		if err != nil {
			return err
		}
		for _, file := range files {
			ref := contract.BlobRef("sha256:" + file.Name())
			if ref.Validate() != nil || file.Name()[:2] != shard.Name() {
				continue
			}
			info, err := file.Info()
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return err
			}
			if err := f(ref, filepath.Join(d.folder(cid), shard.Name(), file.Name()), info); err != nil {
				return err
			}
		}
	}
	return nil
}

// Put implements blob.Store. When it returns, the content and its directory entry are on
// disk.
func (d *Store) Put(ctx context.Context, cid contract.CID, r io.Reader) (_ contract.BlobRef, _ int64, err error) {
	const op = "blob.Put"
	if err := cid.Validate(); err != nil {
		return "", 0, fault.New(op, fault.Invalid, "", err)
	}
	c, err := d.computer(cid)
	if err != nil {
		return "", 0, diskFault(op, err)
	}
	temp := filepath.Join(d.folder(cid), tempDir)
	if err := c.mkdirs(d.dir, d.folder(cid), temp); err != nil {
		return "", 0, diskFault(op, err)
	}
	f, err := os.CreateTemp(temp, "put-*") // 0600
	if err != nil {
		return "", 0, diskFault(op, err)
	}
	reserved := &reservation{computer: c, quota: d.quota}
	kept := false
	defer func() {
		closeErr := f.Close()
		if errors.Is(closeErr, fs.ErrClosed) {
			closeErr = nil
		}
		if !kept {
			reserved.release()
			closeErr = errors.Join(closeErr, os.Remove(f.Name()))
		}
		if err == nil && closeErr != nil {
			err = diskFault(op, closeErr)
		}
	}()
	d.step("created")
	sum := sha256.New()
	size, err := io.Copy(io.MultiWriter(sum, reserved, f), contextReader{ctx, r})
	if err != nil {
		return "", 0, diskFault(op, err)
	}
	d.step("written")
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return "", 0, diskFault(op, err)
	}
	d.step("synced")
	crash.At("blob.synced")
	ref := contract.NewBlobRef([sha256.Size]byte(sum.Sum(nil)))
	target := d.path(cid, ref)
	if err := c.mkdirs(d.folder(cid), filepath.Dir(target)); err != nil {
		return "", 0, diskFault(op, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	replaced := int64(0)
	if info, err := os.Stat(target); err == nil {
		replaced = info.Size()
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", 0, diskFault(op, err)
	}
	if err := os.Rename(f.Name(), target); err != nil {
		return "", 0, diskFault(op, err)
	}
	kept = true
	c.used -= replaced
	d.step("renamed")
	crash.At("blob.renamed")
	if err := durable.SyncDir(filepath.Dir(target)); err != nil {
		return "", 0, diskFault(op, err)
	}
	d.step("done")
	return ref, size, nil
}

// reservation counts a blob against its computer's quota while it is written.
type reservation struct {
	computer *computer
	quota    blob.Quota
	size     int64
}

func (r *reservation) Write(p []byte) (int, error) {
	n := int64(len(p))
	if r.quota.PerBlob > 0 && !defence.Off(defence.BlobSize) && r.size+n > r.quota.PerBlob {
		return 0, fault.New("", fault.Exhausted, "Split it, or raise the limit.", fmt.Errorf("a blob may be %d bytes long", r.quota.PerBlob))
	}
	r.computer.mu.Lock()
	defer r.computer.mu.Unlock()
	if r.quota.PerComputer > 0 && !defence.Off(defence.BlobQuota) && r.computer.used+n > r.quota.PerComputer {
		return 0, fault.New("", fault.Exhausted, "Remove what this computer no longer needs, or raise its quota.",
			fmt.Errorf("the computer's quota of %d bytes is used up", r.quota.PerComputer))
	}
	r.computer.used += n
	r.size += n
	return len(p), nil
}

func (r *reservation) release() {
	r.computer.mu.Lock()
	defer r.computer.mu.Unlock()
	r.computer.used -= r.size
	r.size = 0
}

type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}

// Stat implements blob.Store.
func (d *Store) Stat(_ context.Context, cid contract.CID, ref contract.BlobRef) (int64, error) {
	const op = "blob.Stat"
	if err := errors.Join(cid.Validate(), ref.Validate()); err != nil {
		return 0, fault.New(op, fault.Invalid, "", err)
	}
	info, err := os.Stat(d.path(cid, ref))
	if err != nil {
		return 0, diskFault(op, err)
	}
	return info.Size(), nil
}

// Usage implements blob.Store.
func (d *Store) Usage(cid contract.CID) (int64, error) {
	const op = "blob.Usage"
	if err := cid.Validate(); err != nil {
		return 0, fault.New(op, fault.Invalid, "", err)
	}
	c, err := d.computer(cid)
	if err != nil {
		return 0, diskFault(op, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used, nil
}

// Collect implements blob.Store. A file's modification time is when its blob was put.
func (d *Store) Collect(ctx context.Context, cid contract.CID, live func(contract.BlobRef) bool, olderThan time.Duration) (int64, error) {
	const op = "blob.Collect"
	if err := cid.Validate(); err != nil {
		return 0, fault.New(op, fault.Invalid, "", err)
	}
	c, err := d.computer(cid)
	if err != nil {
		return 0, diskFault(op, err)
	}
	limit := time.Now().Add(-olderThan)
	var freed int64
	err = d.each(cid, func(ref contract.BlobRef, path string, info fs.FileInfo) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if info.ModTime().After(limit) || live(ref) {
			return nil
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		// Put may have renewed it since it was listed.
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if info.ModTime().After(limit) {
			return nil
		}
		if err := os.Remove(path); err != nil {
			return err
		}
		c.used -= info.Size()
		freed += info.Size()
		return nil
	})
	return freed, diskFault(op, err)
}

// Remove implements blob.Store.
func (d *Store) Remove(_ context.Context, cid contract.CID) error {
	const op = "blob.Remove"
	if err := cid.Validate(); err != nil {
		return fault.New(op, fault.Invalid, "", err)
	}
	c, err := d.computer(cid)
	if err != nil {
		return diskFault(op, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known, c.used = false, 0
	return diskFault(op, os.RemoveAll(d.folder(cid)))
}

// mkdirs makes each directory inside the one before it, durably: the lock is held until its
// entry is on disk, so no other Put uses a directory that is not.
func (c *computer) mkdirs(parent string, dirs ...string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, dir := range dirs {
		err := os.Mkdir(dir, 0o700)
		if errors.Is(err, fs.ErrExist) {
			parent = dir
			continue
		}
		if err != nil {
			return err
		}
		if err := durable.SyncDir(parent); err != nil {
			return err
		}
		parent = dir
	}
	return nil
}

// diskFault gives errors of the file system their code.
func diskFault(op string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return fault.New(op, fault.NotFound, "", err)
	}
	return fault.Wrap(op, err)
}

// Open implements blob.Store.
func (d *Store) Open(_ context.Context, cid contract.CID, ref contract.BlobRef) (io.ReadSeekCloser, int64, error) {
	const op = "blob.Open"
	if err := errors.Join(cid.Validate(), ref.Validate()); err != nil {
		return nil, 0, fault.New(op, fault.Invalid, "", err)
	}
	f, err := os.Open(d.path(cid, ref))
	if err != nil {
		return nil, 0, diskFault(op, err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(diskFault(op, err), f.Close())
	}
	return blob.Checked(f, ref, info.Size()), info.Size(), nil
}
