package guest

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
)

// files serves GET and PUT /files/{path} below the box's root. os.Root keeps every step
// inside it, even if symlinks are made meanwhile.
func (g *server) files(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/files/")
	if name == "" || !fs.ValidPath(name) || strings.IndexByte(name, 0) >= 0 {
		writeError(w, fault.New("guest.Files", fault.Invalid, "", fmt.Errorf("%.80q is no path below the root", name)))
		return
	}
	at := g.spec.Root
	if defence.Off(defence.GuestBeneath) {
		if there, err := filepath.EvalSymlinks(filepath.Join(at, name)); err == nil {
			at, name = "/", there[1:]
		}
	}
	root, err := os.OpenRoot(at)
	if err != nil {
		writeError(w, fileError(err))
		return
	}
	defer root.Close()
	switch r.Method {
	case http.MethodGet:
		err = getFile(w, root, name)
	case http.MethodPut:
		err = putFile(r.Body, root, name, r.Header.Get("X-Choir-Mode"))
		if err == nil {
			w.WriteHeader(http.StatusNoContent)
		}
	default:
		err = fault.New("guest.Files", fault.Invalid, "", errors.New("use GET or PUT"))
	}
	if err != nil {
		writeError(w, fileError(err))
	}
}

func fileError(err error) error {
	code := fault.CodeOf(err)
	switch {
	case code != fault.Internal:
		return err
	case errors.Is(err, fs.ErrNotExist):
		code = fault.NotFound
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		code = fault.Denied
	case errors.Is(err, syscall.EFBIG):
		code = fault.DiskFull
	case strings.Contains(err.Error(), "path escapes"):
		code = fault.Denied
	}
	return fault.New("guest.Files", code, "", err)
}

func getFile(w http.ResponseWriter, root *os.Root, name string) error {
	// O_NONBLOCK, so that a pipe in place of the file does not block.
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fault.New("guest.Files", fault.Invalid, "", fmt.Errorf("%s is not a regular file", name))
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(info.Size(), 10))
	w.Header().Set("X-Choir-Mode", strconv.FormatUint(uint64(info.Mode().Perm()), 8))
	_, _ = io.CopyN(w, f, info.Size()) // if the file shrinks meanwhile, the answer is cut off, which the client notices
	return nil
}

// putFile writes a new file beside the old one and renames it, so that a reader sees the
// old or the new content and a failed upload leaves nothing.
func putFile(body io.Reader, root *os.Root, name, mode string) error {
	perm := os.FileMode(0o644)
	if mode != "" {
		n, err := strconv.ParseUint(mode, 8, 32)
		if err != nil || n > 0o777 {
			return fault.New("guest.Files", fault.Invalid, "", fmt.Errorf("mode %.10q", mode))
		}
		perm = os.FileMode(n)
	}
	if dir := path.Dir(name); dir != "." {
		if err := root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	var salt [8]byte
	_, _ = rand.Read(salt[:])
	aside := path.Join(path.Dir(name), ".choir-"+hex.EncodeToString(salt[:]))
	f, err := root.OpenFile(aside, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, body)
	err = errors.Join(err, f.Chmod(perm), f.Sync(), f.Close())
	if err == nil {
		err = root.Rename(aside, name)
	}
	if err != nil {
		return errors.Join(err, root.Remove(aside))
	}
	return nil
}
