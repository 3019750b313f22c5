// Package image carries the guest binary inside choir.
//
// `make build` compiles cmd/choir-guest, packs it into payload/ and then builds
// choir with the build tag embedguest. Without the tag (go run, tests) there is
// no payload, and choir itself serves as the guest: the same code, a few
// milliseconds slower to start.
package image

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"

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
	return place(payload, dir)
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

// unpack is the reverse of Pack, and checks the sum.
func unpack(packed []byte) ([]byte, error) {
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer dec.Close()
	binary, err := dec.DecodeAll(packed[sha256.Size:], nil)
	if err != nil {
		return nil, fmt.Errorf("unpack the guest binary: %w", err)
	}
	if sum := sha256.Sum256(binary); string(sum[:]) != string(packed[:sha256.Size]) {
		return nil, errors.New("unpack the guest binary: it is not what was packed")
	}
	return binary, nil
}

// place writes the packed binary to dir unless it is there.
func place(packed []byte, dir string) (string, error) {
	const op = "guest/image.Path"
	if len(packed) < sha256.Size {
		return "", fault.New(op, fault.Internal, "Build choir with `make build`.", errors.New("the embedded guest binary is cut short"))
	}
	path := filepath.Join(dir, "guest-"+hex.EncodeToString(packed[:8]))
	if have, err := os.ReadFile(path); err == nil {
		if sum := sha256.Sum256(have); string(sum[:]) == string(packed[:sha256.Size]) {
			return path, nil
		}
	}
	binary, err := unpack(packed)
	if err != nil {
		return "", fault.New(op, fault.Internal, "Build choir with `make build`.", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fault.Wrap(op, err)
	}
	f, err := os.CreateTemp(dir, ".guest-")
	if err != nil {
		return "", fault.Wrap(op, err)
	}
	// Not synced: what is there is held against its sum before it is used.
	_, err = f.Write(binary)
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
