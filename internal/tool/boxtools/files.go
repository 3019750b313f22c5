package boxtools

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/harness"
)

// place is a file below one of the roots.
type place struct {
	root *os.Root
	rel  string
	name string // as it is told
}

// at is a clean path in the workspace.
func (b *Box) at(p string) place { return place{b.root, p, p} }

// look finds the place of a path to read: in the workspace, or in the folder with commands' output.
func (b *Box) look(p string) (place, error) {
	if at, ok := b.kept.find(p); ok {
		return at, nil
	}
	p, err := b.clean(p)
	return b.at(p), err
}

// open opens a regular file, and never blocks on something else, such as a pipe.
func (b *Box) open(p place) (*os.File, fs.FileInfo, error) {
	f, err := p.root.OpenFile(p.rel, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		kind := "not a regular file"
		if info.IsDir() {
			kind = "a folder"
		}
		err = refuse("%s is %s", p.name, kind)
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// load reads a whole file of at most maxFile bytes.
func (b *Box) load(p place) ([]byte, fs.FileInfo, error) {
	f, info, err := b.open(p)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, nil, err
	}
	if len(data) > maxFile {
		return nil, nil, refuse("%s is %d bytes long; at most %d are handled at once (use bash with head, sed or grep)", p.name, info.Size(), maxFile)
	}
	return data, info, nil
}

func binary(data []byte) bool {
	return bytes.IndexByte(data[:min(len(data), 8<<10)], 0) >= 0
}

type writeArgs struct {
	Path       string `json:"path"`
	Content    string `json:"content"`
	Executable bool   `json:"executable"`
	Overwrite  bool   `json:"overwrite"`
}

func (b *Box) write(_ context.Context, a writeArgs) (Result, error) {
	p, err := b.cleanForWrite(a.Path)
	if err != nil {
		return Result{}, err
	}
	b.changing.Lock()
	defer b.changing.Unlock()
	mode, fresh, err := b.target(p)
	if err != nil {
		return Result{}, err
	}
	if !fresh {
		if err := b.mayReplace(p, a.Overwrite); err != nil {
			return Result{}, err
		}
	}
	if a.Executable {
		mode |= 0o111
	}
	if err := b.put(p, []byte(a.Content), mode); err != nil {
		return Result{}, err
	}
	verb := "replaced"
	if fresh {
		verb = "created"
	}
	return Result{OK: true, Output: fmt.Sprintf("%s %s (%d bytes)", verb, p, len(a.Content))}, nil
}

// mayReplace refuses to replace a file whose content nobody here knows.
func (b *Box) mayReplace(p string, overwrite bool) error {
	unread := refuse("%s exists and you have not read it; read it first, or edit it, or set overwrite if its content does not matter", p)
	data, info, err := b.load(b.at(p))
	if err != nil {
		var no refusal
		if errors.As(err, &no) && !overwrite { // it is too large to have been read
			return unread
		}
		if errors.As(err, &no) {
			return nil
		}
		return err
	}
	known, err := b.unchanged(p, data)
	if err == nil && !known && !overwrite && info.Size() > 0 {
		return unread
	}
	return err
}

// put makes a file's folder and its content, and remembers the content.
func (b *Box) put(p string, data []byte, mode fs.FileMode) error {
	if dir := path.Dir(p); dir != "." {
		if err := b.root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := b.replace(p, data, mode); err != nil {
		return err
	}
	b.saw(p, data)
	return nil
}

// target returns the mode that a write to p gives the file, and whether p is new.
func (b *Box) target(p string) (mode fs.FileMode, fresh bool, err error) {
	info, err := b.root.Lstat(p)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0o644, true, nil
	case err != nil:
		return 0, false, err
	case info.Mode()&fs.ModeSymlink != 0:
		to, err := b.root.Readlink(p)
		if err != nil {
			return 0, false, err
		}
		return 0, false, refuse("%s is a symbolic link to %s; write to the file itself", p, harness.Clip(to, 200))
	case info.IsDir():
		return 0, false, refuse("%s is a folder", p)
	case !info.Mode().IsRegular():
		return 0, false, refuse("%s is not a regular file", p)
	}
	return info.Mode().Perm(), false, nil
}

// replace writes data to p atomically, so that nobody sees half a file.
func (b *Box) replace(p string, data []byte, mode fs.FileMode) error {
	var rnd [6]byte
	_, _ = rand.Read(rnd[:]) // never fails since Go 1.24
	tmp := path.Join(path.Dir(p), fmt.Sprintf(".choir-write-%x", rnd))
	f, err := b.root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(mode)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = b.root.Rename(tmp, p)
	}
	if err != nil {
		return errors.Join(err, b.root.Remove(tmp))
	}
	return nil
}

func (b *Box) ls(_ context.Context, a pathArgs) (Result, error) {
	if a.Path == "" {
		a.Path = "."
	}
	p, err := b.clean(a.Path)
	if err != nil {
		return Result{}, err
	}
	d, err := b.root.OpenFile(p, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return Result{}, err
	}
	defer d.Close()
	entries, err := d.ReadDir(maxListed + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return Result{}, err
	}
	res := Result{OK: true}
	if len(entries) > maxListed {
		entries, res.Truncated = entries[:maxListed], true
	}
	sortEntries(entries)
	var out strings.Builder
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			continue // it was removed while we listed
		}
		switch {
		case e.IsDir():
			fmt.Fprintf(&out, "dir        -  %s/\n", e.Name())
		case e.Type()&fs.ModeSymlink != 0:
			to, err := b.root.Readlink(path.Join(p, e.Name()))
			if err != nil {
				to = "?"
			}
			fmt.Fprintf(&out, "link       -  %s -> %s\n", e.Name(), harness.Clip(to, 200))
		case info.Mode().IsRegular():
			fmt.Fprintf(&out, "file %7d  %s\n", info.Size(), e.Name())
		default:
			fmt.Fprintf(&out, "other      -  %s\n", e.Name())
		}
	}
	if out.Len() == 0 {
		out.WriteString("(empty folder)\n")
	}
	if res.Truncated {
		fmt.Fprintf(&out, "(more than %d entries; the rest is not shown)\n", maxListed)
	}
	res.Output = out.String()
	return res, nil
}

func (b *Box) checkTheme(_ context.Context, a pathArgs) (Result, error) {
	p, err := b.clean(a.Path)
	if err != nil {
		return Result{}, err
	}
	data, _, err := b.load(b.at(p))
	if err != nil {
		return Result{}, err
	}
	if _, err := contract.DecodeTheme(data); err != nil {
		return Result{}, refuse("%s: %v", p, err)
	}
	return Result{OK: true, Output: p + " is a valid theme"}, nil
}
