package vault

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
)

// private checks that nobody else can read or change a file, or change a
// directory, and that it is not a link.
func private(path string, dir bool) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	return privateInfo(path, info, dir, 0o077)
}

// privateInfo does the same for what Stat returned; others are the mode bits that the file
// must not have.
func privateInfo(path string, info fs.FileInfo, dir bool, others fs.FileMode) error {
	deny := func(format string, args ...any) error {
		return fault.New("vault", fault.Denied, "Run `chmod go= "+path+"` as its owner, and look whether somebody read it.", fmt.Errorf(format, args...))
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case dir && !info.IsDir(), !dir && !info.Mode().IsRegular():
		return deny("%s is not what it should be (%s)", path, info.Mode().Type())
	case defence.Off(defence.VaultPrivate):
		return nil
	case !dir && info.Mode().Perm()&others != 0, dir && info.Mode().Perm()&0o022 != 0:
		return deny("%s is open to others (mode %04o)", path, info.Mode().Perm())
	case ok && int(st.Uid) != os.Geteuid() && st.Uid != 0:
		return deny("%s belongs to another user (%d)", path, st.Uid)
	}
	return nil
}

// readPrivate reads a file that private accepts, following no link.
func readPrivate(path string, limit int64) ([]byte, error) {
	return readMasked(path, limit, 0o077)
}

func readMasked(path string, limit int64, others fs.FileMode) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) {
		return nil, fault.New("vault", fault.Denied, "Put the file itself there.", fmt.Errorf("%s is a link", path))
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if err := privateInfo(path, info, false, others); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fault.New("vault", fault.Invalid, "", fmt.Errorf("%s is too large", path))
	}
	return b, err
}

// replace writes a file beside the old one, syncs it, renames it over the old one and syncs
// the directory: after a crash there is either the old or the new one.
func replace(dir, name string, content []byte) (err error) {
	f, err := os.CreateTemp(dir, "."+name+".*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if _, err = f.Write(content); err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	if err = os.Rename(f.Name(), filepath.Join(dir, name)); err != nil {
		return err
	}
	d, derr := os.Open(dir)
	if derr != nil {
		return derr
	}
	defer d.Close()
	// The new file is in place. That it may not survive a power loss is an error for the
	// caller, but nothing that could be taken back.
	if serr := d.Sync(); serr != nil {
		return serr
	}
	return nil
}
