package computer

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/ledger"
)

// Export implements control.Computers: files/ as they lie in the workspace, its
// history included, and events.jsonl with every event that can be read. Nothing
// is opened for it, so it works when nothing else does.
func (h *Host) Export(ctx context.Context, cid contract.CID, w io.Writer) error {
	const op = "computer.Export"
	h.mu.Lock()
	p := h.places[cid]
	h.mu.Unlock()
	if p == nil {
		return noComputer(op, cid)
	}
	out := tar.NewWriter(w)
	if err := h.exportEvents(ctx, cid, out); err != nil {
		return fault.Wrap(op, err)
	}
	if err := exportFiles(ctx, h.Dir.Computer(cid, "workspace"), out); err != nil {
		return fault.Wrap(op, err)
	}
	return fault.Wrap(op, out.Close())
}

// exportEvents writes the events twice over the store's files: once for the
// size that stands before them.
func (h *Host) exportEvents(ctx context.Context, cid contract.CID, out *tar.Writer) error {
	each := func(f func([]byte) error) error {
		return bus.ReadLog(ctx, h.Dir.Path("nats"), cid, func(m bus.Message) error {
			if ledger.IsOf(m, cid) {
				return f(m.Data)
			}
			return nil
		})
	}
	var size, most int64
	if err := each(func(b []byte) error { size += int64(len(b)) + 1; return nil }); err != nil {
		return err
	}
	if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "events.jsonl", Size: size, Mode: 0o600, Format: tar.FormatPAX}); err != nil {
		return err
	}
	return each(func(b []byte) error {
		if most += int64(len(b)) + 1; most > size {
			return nil // it has grown since
		}
		_, err := out.Write(append(b[:len(b):len(b)], '\n'))
		return err
	})
}

// exportFiles archives a tree that boxes could write: through descriptors below
// its root, and no link is followed.
func exportFiles(ctx context.Context, dir string, out *tar.Writer) error {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close() // only read from
	return fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			if d != nil && d.IsDir() && errors.Is(err, fs.ErrPermission) {
				return fs.SkipDir
			}
			return err
		}
		info, err := root.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) || name == "." {
			return nil
		}
		if err != nil {
			return err
		}
		return exportFile(root, name, info, out)
	})
}

func exportFile(root *os.Root, name string, info fs.FileInfo, out *tar.Writer) error {
	head := &tar.Header{Name: path.Join("files", name), Mode: int64(info.Mode().Perm()), ModTime: info.ModTime(), Format: tar.FormatPAX}
	switch {
	case info.IsDir():
		head.Typeflag, head.Name = tar.TypeDir, head.Name+"/"
		return out.WriteHeader(head)
	case info.Mode()&fs.ModeSymlink != 0:
		to, err := root.Readlink(name)
		if err != nil {
			return err
		}
		head.Typeflag, head.Linkname = tar.TypeSymlink, to
		return out.WriteHeader(head)
	case !info.Mode().IsRegular():
		return nil // a socket or pipe holds nothing
	}
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // not waiting, should it be a pipe by now
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err == nil && !os.SameFile(st, info) {
		err = fmt.Errorf("%s was replaced while it was read", name)
	}
	if err == nil {
		head.Typeflag, head.Size = tar.TypeReg, st.Size()
		err = out.WriteHeader(head)
	}
	if err == nil {
		_, err = io.CopyN(out, f, st.Size())
	}
	return errors.Join(err, f.Close())
}
