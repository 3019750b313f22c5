package engine

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/publish"
	"choir.dev/choiros/internal/workspace/keeper/scan"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// receive writes a stream of at most max bytes to a new file, durably, and
// returns its SHA-256 in hex.
func receive(name string, content io.Reader, max int64) (string, error) {
	const perm = fs.FileMode(0o644)
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, perm)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, h), io.LimitReader(content, max+1))
	if err == nil && n > max {
		err = fault.New("", fault.Exhausted, "Raise storage.large_file_mb, or split it.", fmt.Errorf("the file has more than %d bytes", max))
	}
	return hex.EncodeToString(h.Sum(nil)), errors.Join(err, f.Chmod(perm), f.Sync(), f.Close())
}

// Import unpacks a tar stream into a new directory of the live tree, all or
// nothing. A .git in it becomes a nested repository; nothing of it is run.
func (e *Engine) Import(ctx context.Context, req wire.ImportRequest, stream io.Reader) (wire.Deed, error) {
	const op = "keeper.Import"
	if err := badPath(string(req.Path), false); err != nil {
		return wire.Deed{}, fault.Wrap(op, err)
	}
	if !strings.HasPrefix(string(req.Path), "workspace/") {
		return wire.Deed{}, fault.New(op, fault.Invalid, "Add it under workspace/.", fmt.Errorf("%q is not under workspace/", req.Path.Shown()))
	}
	tmp := e.store.Work("tmp-import-" + publish.Token())
	if err := os.Mkdir(tmp, 0o755); err != nil {
		return wire.Deed{}, fileError(op, string(req.Path), err)
	}
	im := wire.Imported{Path: req.Path, Origin: req.Origin, Remote: req.Remote}
	in := publish.Intent{Deed: wire.Deed{Op: "import", Path: req.Path, Actor: req.Actor, User: req.User, Import: &im}, Content: filepath.Base(tmp)}
	err := e.unpack(ctx, tmp, stream, &im)
	if err == nil {
		im.Commit = repositoryHead(tmp)
		err = e.placeImport(ctx, tmp, string(req.Path), &in)
	}
	if err != nil {
		return wire.Deed{}, fileError(op, string(req.Path), errors.Join(err, disk.RemoveTree(tmp)))
	}
	return in.Deed, nil
}

func (e *Engine) placeImport(ctx context.Context, tmp, p string, in *publish.Intent) error {
	if err := unix.Syncfs(e.look.Root); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.moves.RollForward(ctx); err != nil {
		return err
	}
	e.look.Doubt()
	dir, err := disk.MakeDirs(e.look.Root, wire.ParentDir(p))
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	err = e.moves.CarryOut(in, func() error {
		err := disk.RenameAt(unix.AT_FDCWD, tmp, dir, path.Base(p), unix.RENAME_NOREPLACE)
		if errors.Is(err, fs.ErrExist) { // the name of our own is nobody's business
			return fault.New("", fault.Conflict, "Choose another name, or remove what is there.", fmt.Errorf("%s is there already", wire.Path(p).Shown()))
		}
		return err
	})
	if err != nil {
		return err
	}
	// Its empty files are meant: that stays known when the host was told.
	return errors.Join(unix.Fsync(dir), e.settleTree(ctx))
}

func (e *Engine) unpack(ctx context.Context, dest string, stream io.Reader, im *wire.Imported) error {
	root, err := unix.Open(dest, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(root)
	tr := tar.NewReader(stream)
	for entries := 0; ; entries++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return streamEnd(stream)
		}
		if err != nil {
			return fault.New("", fault.Invalid, "Send a tar archive.", err)
		}
		if entries >= e.opts.Limits.Files && !defence.Off(defence.ArchiveEntries) {
			return fault.New("", fault.Exhausted, "Leave out dependency folders; they can be installed again.", fmt.Errorf("it holds more than %d entries", e.opts.Limits.Files))
		}
		name := strings.TrimSuffix(strings.TrimPrefix(h.Name, "./"), "/")
		if name == "" || name == "." {
			continue
		}
		// .git/… is a repository here, not the computer's own history.
		if err := wire.CheckPath("x/"+name, false); (err != nil || strings.HasPrefix(name, "/")) && !defence.Off(defence.ArchiveNames) {
			return hostile(fmt.Errorf("entry %q leaves the directory or is not clean", wire.Short(h.Name)))
		}
		if err := e.unpackEntry(root, name, h, tr, im); err != nil {
			return fmt.Errorf("unpack %q: %w", wire.Short(name), err)
		}
	}
}

// maxTarPadding is what may come behind an archive's end: programs fill up their
// last record.
const maxTarPadding = 1 << 20

// streamEnd reads what is behind an archive's end, for only the stream's own end
// says that its sender packed all it was to pack: an archive can be closed in good
// order behind an error.
func streamEnd(stream io.Reader) error {
	n, err := io.Copy(io.Discard, io.LimitReader(stream, maxTarPadding+1))
	if err != nil {
		return fault.New("", fault.Invalid, "Send it again; nothing of it was brought in.", fmt.Errorf("the archive's sender did not come to its end: %w", err))
	}
	if n > maxTarPadding {
		return hostile(fmt.Errorf("more than %d bytes follow its end", maxTarPadding))
	}
	return nil
}

func hostile(err error) error {
	return fault.New("", fault.Invalid, "The archive is damaged or hostile.", err)
}

func (e *Engine) unpackEntry(root int, name string, h *tar.Header, content io.Reader, im *wire.Imported) error {
	if h.Typeflag == tar.TypeDir {
		fd, err := disk.MakeDirs(root, name)
		if err != nil {
			return err
		}
		return unix.Close(fd)
	}
	if h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeSymlink && h.Typeflag != tar.TypeLink {
		if h.Typeflag != tar.TypeXGlobalHeader {
			im.Skipped++
			if im.Total++; len(im.Left) < scan.MaxSkips {
				im.Left = append(im.Left, wire.Skip{Path: wire.Path(wire.JoinPath(string(im.Path), name)), Reason: "is a " + tarKind(h.Typeflag) + ", and was not brought in"})
			}
		}
		return nil
	}
	dir, err := disk.MakeDirs(root, wire.ParentDir(name))
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	base := path.Base(name)
	switch h.Typeflag {
	case tar.TypeSymlink:
		if len(h.Linkname) > wire.MaxPath || h.Linkname == "" {
			return hostile(fmt.Errorf("its target has %d bytes", len(h.Linkname)))
		}
		im.Files++
		return unix.Symlinkat(h.Linkname, dir, base)
	case tar.TypeLink:
		target := strings.TrimPrefix(h.Linkname, "./")
		if err := wire.CheckPath("x/"+target, false); (err != nil || strings.HasPrefix(target, "/")) && !defence.Off(defence.ArchiveLinks) {
			return hostile(fmt.Errorf("it links to %q", wire.Short(h.Linkname)))
		}
		from, err := disk.OpenDir(root, wire.ParentDir(target))
		if err != nil {
			return err
		}
		defer unix.Close(from)
		if st, err := disk.Lstat(from, path.Base(target)); err != nil || !st.IsRegular() {
			return hostile(errors.Join(err, fmt.Errorf("it links to %q, which is no file", wire.Short(target))))
		}
		im.Files++
		return unix.Linkat(from, path.Base(target), dir, base, 0)
	}
	if im.Bytes += h.Size; h.Size < 0 || im.Bytes > e.opts.Limits.NewBytes && !defence.Off(defence.ArchiveBytes) {
		return fault.New("", fault.Exhausted, "Leave out large files.", fmt.Errorf("it holds more than %d bytes", e.opts.Limits.NewBytes))
	}
	perm := uint32(0o644)
	if h.Mode&0o100 != 0 {
		perm = 0o755
	}
	fd, err := disk.OpenBeneath(dir, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, perm)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), base)
	_, err = io.Copy(f, content)
	im.Files++
	return errors.Join(err, f.Chmod(fs.FileMode(perm)), f.Close())
}

// tarKind names what an archive holds that is not brought in.
func tarKind(flag byte) string {
	switch flag {
	case tar.TypeFifo:
		return "fifo"
	case tar.TypeChar, tar.TypeBlock:
		return "device"
	}
	return "special file"
}

// repositoryHead reads which commit a repository's HEAD names, as plain data.
func repositoryHead(dir string) string {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return ""
	}
	defer root.Close()
	read := func(name string, max int) string {
		f, err := root.Open(filepath.Join(".git", name))
		if err != nil {
			return ""
		}
		defer f.Close()
		if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
			return ""
		}
		b, err := io.ReadAll(io.LimitReader(f, int64(max)))
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(b))
	}
	head := read("HEAD", 1024)
	if ref, ok := strings.CutPrefix(head, "ref: "); ok {
		head = ""
		if strings.HasPrefix(ref, "refs/") && wire.CheckPath(ref, false) == nil {
			head = read(ref, 128)
			for line := range strings.SplitSeq(read("packed-refs", 16<<20), "\n") {
				if id, name, ok := strings.Cut(line, " "); ok && name == ref && head == "" {
					head = id
				}
			}
		}
	}
	if !wire.IsHex(head) || (len(head) != 40 && len(head) != 64) {
		return ""
	}
	return head
}
