package blob

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"syscall"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
)

// Quota bounds how many bytes a computer may store; zero means no bound.
type Quota struct {
	PerComputer int64
	PerBlob     int64
}

// Store stores content by its hash, separately for each computer. Package disk implements
// it; package blobtest tests what every implementation must do. Its methods may be called
// from many goroutines.
//
// A malformed id or reference is fault.Invalid; content that does not exist is
// fault.NotFound.
type Store interface {
	// Put stores what r yields and returns its reference and size. When it returns, the
	// content survives a power cut. Content that exists already is written again, which
	// repairs a damaged copy and restarts its grace period. A Put that fails leaves
	// nothing behind. Errors: fault.Exhausted (quota), fault.DiskFull, and r's own.
	Put(ctx context.Context, cid contract.CID, r io.Reader) (contract.BlobRef, int64, error)
	// Open opens a blob for reading, with Checked's check of its hash, and returns its
	// size.
	Open(ctx context.Context, cid contract.CID, ref contract.BlobRef) (io.ReadSeekCloser, int64, error)
	// Stat returns a blob's size.
	Stat(ctx context.Context, cid contract.CID, ref contract.BlobRef) (int64, error)
	// Usage returns how many bytes a computer stores, including those that are being
	// written.
	Usage(cid contract.CID) (int64, error)
	// Collect removes the blobs of a computer for which live is false and which were put
	// longer than olderThan ago. Younger ones are kept because a blob is stored before the
	// event that names it. It returns how many bytes it freed.
	Collect(ctx context.Context, cid contract.CID, live func(contract.BlobRef) bool, olderThan time.Duration) (int64, error)
	// Remove deletes all of a computer's blobs.
	Remove(ctx context.Context, cid contract.CID) error
}

// ErrCorrupt is in the chain of a reader's error when the stored bytes are not those that
// were put.
var ErrCorrupt = errors.New("the stored content does not match its hash")

// Gone reports whether an error means that trying again will not give a blob's content: it
// does not exist, it is not what was put, or the disk does not give it. The caller must
// then do without it.
func Gone(err error) bool {
	if fault.Is(err, fault.NotFound) || errors.Is(err, ErrCorrupt) {
		return true
	}
	var no syscall.Errno
	if !errors.As(err, &no) {
		return false
	}
	switch no {
	case syscall.EIO, syscall.EACCES, syscall.EPERM, syscall.EISDIR, syscall.ENOTDIR, syscall.ELOOP, syscall.EUCLEAN, syscall.EBADMSG:
		return true
	}
	return false
}

// Checked reads content whose size is known. If it is read from start to end, its hash is
// checked, and ErrCorrupt is returned instead of the last bytes if it is not ref's; after a
// Seek to elsewhere than the start nothing is checked.
func Checked(content io.ReadSeekCloser, ref contract.BlobRef, size int64) io.ReadSeekCloser {
	return &reader{file: content, ref: ref, size: size, sum: sha256.New()}
}

type reader struct {
	file   io.ReadSeekCloser
	ref    contract.BlobRef
	size   int64
	offset int64
	sum    hash.Hash // the hash of everything before offset; nil after a Seek to elsewhere than the start
}

func (r *reader) Read(p []byte) (int, error) {
	n, err := r.file.Read(p)
	r.offset += int64(n)
	if r.sum != nil {
		r.sum.Write(p[:n]) // never fails
		if (r.offset >= r.size && n > 0) || (err == io.EOF && len(p) > 0) {
			if contract.NewBlobRef([sha256.Size]byte(r.sum.Sum(nil))) != r.ref {
				return 0, fault.New("blob.Read", fault.Internal, "Restore it from a backup.", fmt.Errorf("%w: %s", ErrCorrupt, r.ref))
			}
		}
	}
	return n, err
}

func (r *reader) Seek(offset int64, whence int) (int64, error) {
	at, err := r.file.Seek(offset, whence)
	if err != nil {
		return at, fault.Wrap("blob.Seek", err)
	}
	switch {
	case at == r.offset:
	case at == 0:
		r.sum = sha256.New()
	default:
		r.sum = nil
	}
	r.offset = at
	return at, nil
}

func (r *reader) Close() error { return r.file.Close() }
