package blob

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"syscall"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
)

// ErrCorrupt is in the chain of the error a reader gives when the bytes on disk
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

// Open opens a blob for reading and returns its size. A reader that reads from
// start to end checks the hash and gives ErrCorrupt instead of the last bytes
// when it does not match; ranged reads, after a Seek, are not checked.
// fault.NotFound when it is not there.
func (d *Disk) Open(_ context.Context, cid contract.CID, ref contract.BlobRef) (io.ReadSeekCloser, int64, error) {
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
	return &reader{file: f, ref: ref, size: info.Size(), sum: sha256.New()}, info.Size(), nil
}

type reader struct {
	file   *os.File
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
