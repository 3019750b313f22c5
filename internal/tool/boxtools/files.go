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

// open opens a regular file, and never blocks on something else, such as a pipe.
func (b *Box) open(p string) (*os.File, fs.FileInfo, error) {
	f, err := b.root.OpenFile(p, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		kind := "not a regular file"
		if info.IsDir() {
			kind = "a folder"
		}
		err = refuse("%s is %s", p, kind)
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// load reads a whole file of at most maxFile bytes.
func (b *Box) load(p string) ([]byte, fs.FileInfo, error) {
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
		return nil, nil, refuse("%s is %d bytes long; at most %d are handled at once (use bash with head, sed or grep)", p, info.Size(), maxFile)
	}
	return data, info, nil
}

func binary(data []byte) bool {
	return bytes.IndexByte(data[:min(len(data), 8<<10)], 0) >= 0
}

type readArgs struct {
	Path   string `json:"path"`
	Offset int    `json:"offset"`
	Limit  int    `json:"limit"`
}

func (b *Box) read(_ context.Context, a readArgs) (Result, error) {
	p, err := b.clean(a.Path)
	if err != nil {
		return Result{}, err
	}
	data, _, err := b.load(p)
	if err != nil {
		return Result{}, err
	}
	if binary(data) {
		return Result{}, refuse("%s is binary (%d bytes)", p, len(data))
	}
	if len(data) == 0 {
		return Result{OK: true, Output: "(empty file)"}, nil
	}
	first, limit := max(a.Offset, 1), a.Limit
	if limit <= 0 {
		limit = 2000
	}
	lines := strings.SplitAfter(string(data), "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	if first > len(lines) {
		return Result{}, refuse("%s has %d lines; there is no line %d", p, len(lines), first)
	}
	var out strings.Builder
	res := Result{OK: true}
	n := first
	for ; n <= len(lines) && n < first+limit; n++ {
		line := strings.TrimSuffix(lines[n-1], "\n")
		if len(line) > 2000 {
			line, res.Truncated = harness.Clip(line, 2000), true
		}
		if out.Len()+len(line) > MaxOutput-300 {
			break
		}
		fmt.Fprintf(&out, "%6d\t%s\n", n, line)
	}
	if n <= len(lines) {
		res.Truncated = true
		fmt.Fprintf(&out, "(lines %d to %d of %d are not shown; read on with offset %d)\n", n, len(lines), len(lines), n)
	}
	res.Output = out.String()
	return res, nil
}

type writeArgs struct {
	Path       string `json:"path"`
	Content    string `json:"content"`
	Executable bool   `json:"executable"`
}

func (b *Box) write(_ context.Context, a writeArgs) (Result, error) {
	p, err := b.cleanForWrite(a.Path)
	if err != nil {
		return Result{}, err
	}
	mode, fresh, err := b.target(p)
	if err != nil {
		return Result{}, err
	}
	if a.Executable {
		mode |= 0o111
	}
	if dir := path.Dir(p); dir != "." {
		if err := b.root.MkdirAll(dir, 0o755); err != nil {
			return Result{}, err
		}
	}
	if err := b.replace(p, []byte(a.Content), mode); err != nil {
		return Result{}, err
	}
	verb := "replaced"
	if fresh {
		verb = "created"
	}
	return Result{OK: true, Output: fmt.Sprintf("%s %s (%d bytes)", verb, p, len(a.Content))}, nil
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

type editArgs struct {
	Path string `json:"path"`
	Old  string `json:"old"`
	New  string `json:"new"`
	All  bool   `json:"all"`
}

func (b *Box) edit(_ context.Context, a editArgs) (Result, error) {
	p, err := b.cleanForWrite(a.Path)
	if err != nil {
		return Result{}, err
	}
	mode, fresh, err := b.target(p)
	if err != nil {
		return Result{}, err
	}
	if fresh {
		return Result{}, refuse("%s does not exist; use write to make it", p)
	}
	data, _, err := b.load(p)
	if err != nil {
		return Result{}, err
	}
	if binary(data) {
		return Result{}, refuse("%s is binary (%d bytes)", p, len(data))
	}
	if a.Old == a.New {
		return Result{}, refuse("old and new are the same")
	}
	n := bytes.Count(data, []byte(a.Old))
	switch {
	case n == 0 && bytes.Contains(data, []byte("\r\n")) && bytes.Contains(bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n")), []byte(a.Old)):
		return Result{}, refuse("old is not in %s as written: the file's lines end in CRLF", p)
	case n == 0:
		return Result{}, refuse("old is not in %s; read it again, white space counts", p)
	case n > 1 && !a.All:
		return Result{}, refuse("old is in %s %d times; add lines around it until it is unique, or set all", p, n)
	}
	if size := len(data) + n*(len(a.New)-len(a.Old)); size > maxFile {
		return Result{}, refuse("%s would be %d bytes long; at most %d are handled", p, size, maxFile)
	}
	if err := b.replace(p, bytes.ReplaceAll(data, []byte(a.Old), []byte(a.New)), mode); err != nil {
		return Result{}, err
	}
	line := 1 + bytes.Count(data[:bytes.Index(data, []byte(a.Old))], []byte("\n"))
	return Result{OK: true, Output: fmt.Sprintf("edited %s: %d replaced, first at line %d", p, n, line)}, nil
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
	data, _, err := b.load(p)
	if err != nil {
		return Result{}, err
	}
	if _, err := contract.DecodeTheme(data); err != nil {
		return Result{}, refuse("%s: %v", p, err)
	}
	return Result{OK: true, Output: p + " is a valid theme"}, nil
}
