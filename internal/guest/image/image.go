// Package image carries the guest binary inside choir.
//
// `make build` compiles cmd/choir-guest into payload/ and then choir with the
// build tag embedguest. Without the tag (go run, tests) there is no payload, and
// choir itself serves as the guest: the same code, a few milliseconds slower to
// start.
package image

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"choir.dev/choiros/internal/fault"
)

// Embedded reports whether this build carries the small guest binary.
func Embedded() bool { return len(payload) > 0 }

// Path returns the guest binary's path for sandbox drivers. The embedded one is
// written once to dir/guest-{hash}; a file of that name with other content is
// replaced. Errors: fault.DiskFull and others of writing.
func Path(dir string) (string, error) {
	const op = "guest/image.Path"
	if !Embedded() {
		self, err := os.Executable()
		return self, fault.Wrap(op, err)
	}
	sum := sha256.Sum256(payload)
	path := filepath.Join(dir, "guest-"+hex.EncodeToString(sum[:8]))
	if have, err := os.ReadFile(path); err == nil && sha256.Sum256(have) == sum {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fault.Wrap(op, err)
	}
	f, err := os.CreateTemp(dir, ".guest-")
	if err != nil {
		return "", fault.Wrap(op, err)
	}
	_, err = f.Write(payload)
	err = errors.Join(err, f.Chmod(0o555), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return "", fault.Wrap(op, fmt.Errorf("write the guest binary: %w", err))
	}
	return path, nil
}
