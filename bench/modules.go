package bench

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"choir.dev/choiros/desktop"
)

func (e *env) shareModules(data string) error { return ShareModules(data, e.Modules) }

// ShareModules lets a new data directory use desktop dependencies that are already
// installed in one of some directories, so that they need not be installed again. Without
// any, choir up installs them itself.
func ShareModules(data string, from []string) error {
	lock, err := fs.ReadFile(desktop.Source(), "package-lock.json")
	if err != nil {
		return err
	}
	sum := sha256.Sum256(lock)
	for _, dir := range from {
		if _, err := os.Stat(filepath.Join(dir, hex.EncodeToString(sum[:8]), "node_modules")); err != nil {
			continue
		}
		dir, err := filepath.EvalSymlinks(dir)
		if err != nil {
			return err
		}
		link := filepath.Join(data, "cache", "node_modules")
		return errors.Join(os.MkdirAll(filepath.Dir(link), 0o700), os.Symlink(dir, link))
	}
	return nil
}

// processor is the processor time that a process has used, in ticks of 10 ms.
func processor(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The process's name is skipped, as it may contain anything; state and numbers follow
	// it.
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(f) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(f))
	}
	user, err1 := strconv.ParseInt(f[11], 10, 64)
	system, err2 := strconv.ParseInt(f[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond, errors.Join(err1, err2)
}
