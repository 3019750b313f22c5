package boxes

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"choir.dev/choiros/internal/fault"
)

// sealMost bounds the entries of a tree, whatever the limits of its box were.
const sealMost = 1 << 20

// seal hashes a tree that nobody writes: names, kinds, executable bits, contents and where
// links lead; not the root entry itself. With plain, a tree is refused (fault.Denied) that
// contains anything but folders, files and links that stay inside it.
func seal(ctx context.Context, files fs.FS, plain bool) (string, error) {
	h := sha256.New()
	links, _ := files.(fs.ReadLinkFS)
	n := 0
	buf := make([]byte, 256<<10)
	err := fs.WalkDir(files, ".", func(p string, e fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case p == entryFile:
			return nil
		case err != nil && !plain && e != nil && e.IsDir():
			fmt.Fprintf(h, "closed %q\n", p) // a package's script took our permission to read it
			return nil
		case err != nil:
			return err
		}
		if n++; n > sealMost {
			return fmt.Errorf("it holds more than %d files", sealMost)
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		kind := info.Mode().Type()
		fmt.Fprintf(h, "%s %q %v\n", kind, p, info.Mode()&0o100 != 0)
		switch {
		case kind == fs.ModeSymlink && links != nil:
			to, err := links.ReadLink(p)
			if err != nil {
				return err
			}
			if plain && outside(p, to) {
				return fault.New("", fault.Denied, "", fmt.Errorf("%s leads to %.200q, outside of what was installed", p, to))
			}
			fmt.Fprintf(h, "%q\n", to)
		case kind == 0:
			if err := sealFile(h, files, p, info.Size(), buf); err != nil && (plain || ctx.Err() != nil) {
				return err
			}
		case kind != fs.ModeDir && plain:
			return fault.New("", fault.Denied, "", fmt.Errorf("%s is no file: %s", p, kind))
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func sealFile(h io.Writer, files fs.FS, p string, size int64, buf []byte) error {
	f, err := files.Open(p)
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.CopyBuffer(sum, io.LimitReader(f, size+1), buf); err != nil {
		return fmt.Errorf("%s: %w", p, err)
	}
	fmt.Fprintf(h, "%x\n", sum.Sum(nil))
	return nil
}

// outside says whether a link at p may lead out of the tree, or to a place beside the
// folder that its box had as the project. A target that goes up after it went down is
// refused: on its way down it may pass another link.
func outside(p, to string) bool {
	if to == "" || path.IsAbs(to) || path.Clean(to) != to {
		return true
	}
	top, _, _ := strings.Cut(p, "/")
	at := path.Join(path.Dir(p), to)
	return at != top && !strings.HasPrefix(at, top+"/")
}
