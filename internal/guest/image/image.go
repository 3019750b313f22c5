// Package image carries the guest binary inside choir, and the program that reads pages of the web.
//
// `make build` compiles cmd/choir-guest, packs it into payload/ and then builds
// choir with the build tag embedguest. Without the tag (go run, tests) there is
// no payload, and choir itself serves as the guest: the same code, a few
// milliseconds slower to start. It must be built without cgo, as all guests are (guest/seal).
package image

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/fault"
)

// Embedded reports whether this build carries the small guest binary.
func Embedded() bool { return len(payload) > 0 }

// Path returns the guest binary's path for sandbox drivers. The embedded one is
// written once to dir/guest-{hash}; a file of that name with other content is
// replaced. Errors: fault.DiskFull and others of writing.
func Path(dir string) (string, error) {
	if !Embedded() {
		self, err := os.Executable()
		return self, fault.Wrap("guest/image.Path", err)
	}
	path, err := place(payload, dir)
	letGo(payload)
	return path, err
}

// Reader returns the program that reads pages of the web (cmd/choir-reader).
func Reader() ([]byte, error) {
	const op = "guest/image.Reader"
	if ReaderName() == "" {
		return nil, fault.New(op, fault.Missing, "Build choir with `make build`.", errors.New("this build carries no reader of pages"))
	}
	var out bytes.Buffer
	err := unpack(reader, &out)
	letGo(reader)
	return out.Bytes(), fault.Wrap(op, err)
}

// ReaderName identifies the reader that this build carries; it is empty in a build that carries none.
func ReaderName() string {
	if len(reader) < sha256.Size {
		return ""
	}
	return hex.EncodeToString([]byte(reader[:8]))
}

// letGo frees the memory of s, a constant in this program's file; the kernel reads its
// whole pages from the file again if they are needed. Otherwise the payload, which is read
// once, would stay 4 MB of each control plane's resident memory.
func letGo(s string) {
	page := os.Getpagesize()
	start := uintptr(unsafe.Pointer(unsafe.StringData(s)))
	skip := (page - int(start%uintptr(page))) % page
	whole := (len(s) - skip) / page * page
	if whole <= 0 {
		return
	}
	// If it fails, the memory stays in use; nothing depends on it.
	_ = unix.Madvise(unsafe.Slice(unsafe.StringData(s[skip:]), whole), unix.MADV_DONTNEED)
}

// Pack makes the payload from a binary: the SHA-256 of the binary, then the
// binary as one zstd frame.
func Pack(binary []byte) ([]byte, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, fault.Wrap("guest/image.Pack", err)
	}
	sum := sha256.Sum256(binary)
	out := enc.EncodeAll(binary, sum[:])
	return out, fault.Wrap("guest/image.Pack", enc.Close())
}

// unpack is the reverse of Pack: it writes the binary to w, and checks its hash.
func unpack(packed string, w io.Writer) error {
	dec, err := zstd.NewReader(strings.NewReader(packed[sha256.Size:]), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return err
	}
	defer dec.Close()
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(w, sum), dec); err != nil {
		return fmt.Errorf("unpack the guest binary: %w", err)
	}
	if string(sum.Sum(nil)) != packed[:sha256.Size] {
		return fault.New("", fault.Internal, "Build choir with `make build`.", errors.New("unpack the guest binary: it is not what was packed"))
	}
	return nil
}

// holds reports whether the file at path has the hash.
func holds(path, sum string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	got := sha256.New()
	_, err = io.Copy(got, f)
	return err == nil && string(got.Sum(nil)) == sum
}

// place writes the packed binary to dir unless it is there.
func place(packed, dir string) (string, error) {
	const op = "guest/image.Path"
	if len(packed) < sha256.Size {
		return "", fault.New(op, fault.Internal, "Build choir with `make build`.", errors.New("the embedded guest binary is cut short"))
	}
	path := filepath.Join(dir, "guest-"+hex.EncodeToString([]byte(packed[:8])))
	if holds(path, packed[:sha256.Size]) {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fault.Wrap(op, err)
	}
	f, err := os.CreateTemp(dir, ".guest-")
	if err != nil {
		return "", fault.Wrap(op, err)
	}
	// The file is not synced, because its hash is checked before it is used.
	err = unpack(packed, f)
	err = errors.Join(err, f.Chmod(0o555), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return "", fault.Wrap(op, fmt.Errorf("write the guest binary: %w", err))
	}
	return path, nil
}
