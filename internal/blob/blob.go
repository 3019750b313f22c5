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

// Quota bounds what one computer may keep, in bytes; zero is no bound.
type Quota struct {
	PerComputer int64
	PerBlob     int64
}

// Store keeps content by its hash, each computer's apart. Package disk is one;
// package blobtest tries what every store has to do. Its methods may be called
// from many goroutines.
//
// A name that is none is fault.Invalid, content that is not there
// fault.NotFound.
type Store interface {
	// Put stores what r yields and returns its reference and size. When it
	// returns, the content outlasts a power cut. Content that is there already is
	// written anew, which repairs a damaged copy and starts its grace period
	// again. A Put that fails leaves nothing. Errors: fault.Exhausted (quota),
	// fault.DiskFull, and r's own.
	Put(ctx context.Context, cid contract.CID, r io.Reader) (contract.BlobRef, int64, error)
	// Open opens a blob for reading, as Checked does, and returns its size.
	Open(ctx context.Context, cid contract.CID, ref contract.BlobRef) (io.ReadSeekCloser, int64, error)
	// Stat returns a blob's size.
	Stat(ctx context.Context, cid contract.CID, ref contract.BlobRef) (int64, error)
	// Usage returns how many bytes a computer keeps, or is about to.
	Usage(cid contract.CID) (int64, error)
	// Collect removes the blobs of a computer for which live is false and which
	// were put longer than olderThan ago: a blob is stored before the event that
	// names it, so a young one may be about to be named. It returns how many
	// bytes it freed.
	Collect(ctx context.Context, cid contract.CID, live func(contract.BlobRef) bool, olderThan time.Duration) (int64, error)
	// Remove deletes all of a computer's blobs.
	Remove(ctx context.Context, cid contract.CID) error
}

// ErrCorrupt is in the chain of the error a reader gives when the bytes stored
// are not those that were put.
var ErrCorrupt = errors.New("the stored content does not match its hash")

// Gone reports whether an error says that a blob's content can't be had however
// often one asks: it is not there, it is not what was put, or the disk does not
// give it. What needs it must then do without.
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

// Checked reads content whose size is known. Read from start to end it checks the
// hash, and gives ErrCorrupt instead of the last bytes when it is not what ref
// says; ranged reads, after a Seek, are not checked.
func Checked(content io.ReadSeekCloser, ref contract.BlobRef, size int64) io.ReadSeekCloser {
	return &reader{file: content, ref: ref, size: size, sum: sha256.New()}
}

type reader struct {
	file   io.ReadSeekCloser
	ref    contract.BlobRef
	size   int64
	offset int64
	sum    hash.Hash // of all before offset; nil after a Seek elsewhere than to the start
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
