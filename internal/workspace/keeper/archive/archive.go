package archive

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Unpack unpacks a tar stream into an empty directory, and records in im what it contained.
func Unpack(ctx context.Context, dest string, stream io.Reader, limits wire.Limits, im *wire.Imported) error {
	u := unpacker{limits: limits, imported: im}
	var err error
	u.root, err = unix.Open(dest, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(u.root)
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
		if entries >= u.limits.Files && !defence.Off(defence.ArchiveEntries) {
			return fault.New("", fault.Exhausted, "Leave out dependency folders; they can be installed again.", fmt.Errorf("it holds more than %d entries", u.limits.Files))
		}
		name := strings.TrimSuffix(strings.TrimPrefix(h.Name, "./"), "/")
		if name == "" || name == "." {
			continue
		}
		// .git/… is a repository here, not the computer's own history.
		if err := wire.CheckPath("x/"+name, false); (err != nil || strings.HasPrefix(name, "/")) && !defence.Off(defence.ArchiveNames) {
			return hostile(fmt.Errorf("entry %q leaves the directory or is not clean", wire.Short(h.Name)))
		}
		if err := u.entry(name, h, tr); err != nil {
			return fmt.Errorf("unpack %q: %w", wire.Short(name), err)
		}
	}
}

// maxTarPadding is how much may follow an archive's end, for programs fill their last
// record.
const maxTarPadding = 1 << 20

// streamEnd reads what follows an archive's end. Only the stream's own end shows that the
// sender packed everything: a program can close an archive properly after an error.
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

// unpacker is an archive that is being unpacked.
type unpacker struct {
	root     int // the directory, open
	limits   wire.Limits
	imported *wire.Imported // what it held
}

// entry unpacks one entry under its name.
func (u *unpacker) entry(name string, h *tar.Header, content io.Reader) error {
	if h.Typeflag == tar.TypeDir {
		fd, err := disk.MakeDirs(u.root, name)
		if err != nil {
			return err
		}
		return unix.Close(fd)
	}
	if h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeSymlink && h.Typeflag != tar.TypeLink {
		if h.Typeflag != tar.TypeXGlobalHeader {
			u.imported.Skipped++
			if u.imported.Total++; len(u.imported.Left) < wire.MaxSkips {
				u.imported.Left = append(u.imported.Left, wire.Skip{Path: wire.Path(wire.JoinPath(string(u.imported.Path), name)), Reason: "is a " + tarKind(h.Typeflag) + ", and was not brought in"})
			}
		}
		return nil
	}
	dir, err := disk.MakeDirs(u.root, wire.ParentDir(name))
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
		u.imported.Files++
		return unix.Symlinkat(h.Linkname, dir, base)
	case tar.TypeLink:
		target := strings.TrimPrefix(h.Linkname, "./")
		if err := wire.CheckPath("x/"+target, false); (err != nil || strings.HasPrefix(target, "/")) && !defence.Off(defence.ArchiveLinks) {
			return hostile(fmt.Errorf("it links to %q", wire.Short(h.Linkname)))
		}
		from, err := disk.OpenDir(u.root, wire.ParentDir(target))
		if err != nil {
			return err
		}
		defer unix.Close(from)
		if st, err := disk.Lstat(from, path.Base(target)); err != nil || !st.IsRegular() {
			return hostile(errors.Join(err, fmt.Errorf("it links to %q, which is no file", wire.Short(target))))
		}
		u.imported.Files++
		return unix.Linkat(from, path.Base(target), dir, base, 0)
	}
	if u.imported.Bytes += h.Size; h.Size < 0 || u.imported.Bytes > u.limits.NewBytes && !defence.Off(defence.ArchiveBytes) {
		return fault.New("", fault.Exhausted, "Leave out large files.", fmt.Errorf("it holds more than %d bytes", u.limits.NewBytes))
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
	u.imported.Files++
	return errors.Join(err, f.Chmod(fs.FileMode(perm)), f.Close())
}

// tarKind names a kind of entry that is left out.
func tarKind(flag byte) string {
	switch flag {
	case tar.TypeFifo:
		return "fifo"
	case tar.TypeChar, tar.TypeBlock:
		return "device"
	}
	return "special file"
}
