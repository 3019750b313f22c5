// Package untar unpacks a tar stream that comes from a box and may be hostile.
package untar

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"choir.dev/choiros/internal/fault"
)

// maxEntries is how many files and folders a tree may have.
const maxEntries = 2_000_000

// maxPadding is how much is read after the end of an archive.
const maxPadding = 1 << 20

// Unpack writes a tar stream of a tree below root, which must be empty. The stream comes
// from a box: nothing is written through a link or outside of root, nothing gets the name
// of the history, and no more than most bytes are taken.
func Unpack(root *os.Root, from io.Reader, most int64) error {
	at := &place{base: root}
	defer at.leave("")
	in := tar.NewReader(from)
	for n := 0; ; n++ {
		head, err := in.Next()
		if errors.Is(err, io.EOF) {
			_, err = io.CopyN(io.Discard, from, maxPadding) // so that the writer is not cut off
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return err
		}
		if err != nil {
			return fault.New("unpack", fault.Unavailable, "Try again.", fmt.Errorf("the files of the checkpoint did not come whole: %w", err))
		}
		if n >= maxEntries {
			return fault.New("unpack", fault.Exhausted, "Fork an earlier checkpoint, or one after some were removed.", fmt.Errorf("the checkpoint holds more than %d files and folders", maxEntries))
		}
		if most -= head.Size; most < 0 {
			return fault.New("unpack", fault.DiskFull, fault.FreeSpace, errors.New("the checkpoint holds more than there is room for"))
		}
		if err := at.entry(head, in); err != nil {
			return fault.New("unpack", fault.CodeOf(err), fault.HintOf(err), fmt.Errorf("%.200q: %w", head.Name, err))
		}
	}
}

// place is a folder below base that was opened folder by folder. The next entry is usually
// in it or near it, so a chain of folders is not walked from its beginning for each.
type place struct {
	base *os.Root
	open []level // the folders on the path to it, the deepest last
}

type level struct {
	path string
	root *os.Root
}

// mostOpen is how many folders are kept open.
const mostOpen = 64

// leave closes the folders that are not on the path to another.
func (p *place) leave(to string) {
	for n := len(p.open) - 1; n >= 0 && !strings.HasPrefix(to+"/", p.open[n].path+"/"); n-- {
		_ = p.open[n].root.Close() // it is only a handle; what was made in it was closed separately
		p.open = p.open[:n]
	}
}

// enter returns a folder, following no link. It is valid until the next call.
func (p *place) enter(dir string) (*os.Root, error) {
	p.leave(dir)
	at := level{".", p.base}
	rest := dir
	if n := len(p.open); n > 0 {
		at = p.open[n-1]
		rest = strings.TrimPrefix(strings.TrimPrefix(dir, at.path), "/")
	}
	if rest == "." || rest == "" {
		return at.root, nil
	}
	for name := range strings.SplitSeq(rest, "/") {
		info, err := at.root.Lstat(name)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			return nil, errors.New("it is below what is no folder")
		}
		root, err := at.root.OpenRoot(name)
		if err != nil {
			return nil, err
		}
		at = level{path.Join(at.path, name), root}
		if len(p.open) == mostOpen {
			_ = p.open[0].root.Close() // as above
			p.open = append(p.open[:0], p.open[1:]...)
		}
		p.open = append(p.open, at)
	}
	return at.root, nil
}

// entry writes one entry. One that is below a link, or in place of an existing file, is
// refused.
func (p *place) entry(head *tar.Header, content io.Reader) error {
	name := path.Clean(head.Name)
	if name == "." {
		return nil
	}
	first, _, _ := strings.Cut(name, "/")
	if !filepath.IsLocal(name) || strings.EqualFold(first, ".git") { // names are bytes, of any encoding
		return errors.New("a checkpoint holds no such path")
	}
	root, err := p.enter(path.Dir(name))
	if err != nil {
		return err
	}
	name = path.Base(name)
	switch head.Typeflag {
	case tar.TypeDir:
		return errors.Join(root.Mkdir(name, 0o755), root.Chmod(name, 0o755))
	case tar.TypeSymlink:
		return root.Symlink(head.Linkname, name)
	case tar.TypeReg:
		mode := fs.FileMode(0o644)
		if head.Mode&0o100 != 0 {
			mode = 0o755
		}
		f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, content)
		return errors.Join(err, f.Chmod(mode), f.Close())
	}
	return errors.New("it is of a kind that no checkpoint holds")
}
