package fork

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"choir.dev/choiros/internal/fault"
)

// maxEntries is how many files and folders a checkpoint may have that is forked.
const maxEntries = 2_000_000

// maxPadding is how much is read behind the end of an archive.
const maxPadding = 1 << 20

// Unpack writes a tar stream of a tree below dir, which must be empty. The stream comes
// from a box: nothing is written through a link or outside of dir, nothing gets the name
// of the history, and no more than most bytes are taken.
func Unpack(dir string, from io.Reader, most int64) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close() // everything in it was closed by itself
	in := tar.NewReader(from)
	for n := 0; ; n++ {
		head, err := in.Next()
		if errors.Is(err, io.EOF) {
			_, err = io.CopyN(io.Discard, from, maxPadding) // who writes it is not cut off
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return err
		}
		if err != nil {
			return fault.New("fork.Unpack", fault.Unavailable, "Try again.", fmt.Errorf("the files of the checkpoint did not come whole: %w", err))
		}
		if most -= head.Size; n >= maxEntries || most < 0 {
			return fault.New("fork.Unpack", fault.Exhausted, fault.FreeSpace, errors.New("the checkpoint holds more than there is room for"))
		}
		if err := entry(root, head, in); err != nil {
			return fault.New("fork.Unpack", fault.CodeOf(err), fault.HintOf(err), fmt.Errorf("%.200q: %w", head.Name, err))
		}
	}
}

// entry writes one thing. One below a link, or in place of what is there, is refused.
func entry(root *os.Root, head *tar.Header, content io.Reader) error {
	name := path.Clean(head.Name)
	if name == "." {
		return nil
	}
	first, _, _ := strings.Cut(name, "/")
	if !fs.ValidPath(name) || strings.EqualFold(first, ".git") {
		return errors.New("a checkpoint holds no such path")
	}
	for at := path.Dir(name); at != "."; at = path.Dir(at) {
		info, err := root.Lstat(at)
		if err != nil {
			return err
		}
		if !info.IsDir() {
			return errors.New("it is below what is no folder")
		}
	}
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
