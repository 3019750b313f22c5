package choirtest

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ModulesAt is the variable that names the directory that Modules returns, for a user who may
// neither read nor write the repository.
const ModulesAt = "CHOIR_TEST_MODULES"

// Modules returns a directory with the shell's dependencies that `make build` installed, so that
// tests need not install them again. They are linked once, under the hash of the lock file, as
// `choir up` would install them.
func Modules() (string, error) {
	if dir := os.Getenv(ModulesAt); dir != "" {
		return dir, nil
	}
	lock, err := os.ReadFile(filepath.Join(Root(), "desktop", "package-lock.json"))
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(lock)
	shared := filepath.Join(Root(), "bin", "cache", "node_modules")
	final := filepath.Join(shared, hex.EncodeToString(sum[:8]))
	if err := os.MkdirAll(shared, 0o755); err != nil {
		return "", err
	}
	guard, err := os.OpenFile(filepath.Join(shared, ".lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return "", err
	}
	defer guard.Close()
	if err := unix.Flock(int(guard.Fd()), unix.LOCK_EX); err != nil {
		return "", err
	}
	if _, err := os.Stat(final); errors.Is(err, fs.ErrNotExist) {
		tmp := final + ".new"
		if err := errors.Join(os.RemoveAll(tmp), os.MkdirAll(tmp, 0o755)); err != nil {
			return "", err
		}
		// Boxes get it read-only, so hard links are safe.
		if out, err := exec.Command("cp", "-al", filepath.Join(Root(), "desktop", "node_modules"), tmp).CombinedOutput(); err != nil {
			return "", errors.Join(err, errors.New(string(out)))
		}
		if err := os.Rename(tmp, final); err != nil {
			return "", err
		}
	}
	return shared, nil
}

// shareModules makes a data directory use Modules.
func shareModules(data string) error {
	shared, err := Modules()
	if err != nil {
		return err
	}
	link := filepath.Join(data, "cache", "node_modules")
	if err := os.MkdirAll(filepath.Dir(link), 0o700); err != nil {
		return err
	}
	if err := os.Symlink(shared, link); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}
