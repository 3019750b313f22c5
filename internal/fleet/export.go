package fleet

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/ledger"
)

// Export implements control.Computers: files/ as they lie in the workspace, its
// history included, and events.jsonl with every event that can be read. The computer is
// woken for it, for what was acknowledged before a power cut may be in the keeper's journal
// alone until then. One that does not wake is archived as it lies, and the archive says so:
// nothing has to be opened for that, so it works when nothing else does.
func (fl *Fleet) Export(ctx context.Context, cid contract.CID, w io.Writer) error {
	const op = "computer.Export"
	fl.mu.Lock()
	p := fl.find(cid)
	fl.mu.Unlock()
	if p == nil {
		return noComputer(op, cid)
	}
	_, asleep := fl.awake(ctx, cid)
	if err := ctx.Err(); err != nil {
		return fault.Wrap(op, err)
	}
	out := tar.NewWriter(w)
	if err := fl.exportEvents(ctx, cid, out); err != nil {
		return fault.Wrap(op, err)
	}
	if err := exportFiles(ctx, fl.Dir.Computer(cid, "workspace"), asleep, out); err != nil {
		return fault.Wrap(op, err)
	}
	return fault.Wrap(op, out.Close())
}

// exportEvents reads the events twice from the store's files: first for the size in the
// archive's header.
func (fl *Fleet) exportEvents(ctx context.Context, cid contract.CID, out *tar.Writer) error {
	if err := fl.Bus.Files(); err != nil {
		return err
	}
	each := func(f func([]byte) error) error {
		_, err := bus.ReadStore(ctx, fl.Dir.Path("nats"), cid, func(m bus.Message) error {
			if ledger.IsOf(m, cid) {
				return f(m.Data)
			}
			return nil
		})
		return err
	}
	var size, most int64
	if err := each(func(b []byte) error { size += int64(len(b)) + 1; return nil }); err != nil {
		return err
	}
	if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "events.jsonl", Size: size, Mode: 0o600, Format: tar.FormatPAX}); err != nil {
		return err
	}
	err := each(func(b []byte) error {
		if most+int64(len(b))+1 > size {
			return nil // the log has grown since the size was taken
		}
		most += int64(len(b)) + 1
		_, err := out.Write(append(b[:len(b):len(b)], '\n'))
		return err
	})
	if err == nil && most < size { // the log was repaired since: fill up with empty lines
		_, err = io.WriteString(out, strings.Repeat("\n", int(size-most)))
	}
	return err
}

// exporting is a tree that is being archived.
type exporting struct {
	root *os.Root
	out  *tar.Writer
	left []string // the first paths that are missing, or not as they were, and why
	more int      // how many more there are
}

const (
	// exportPath bounds the path of a file in an archive: opening it walks its folders from
	// the root each time.
	exportPath = 4096
	maxLeft    = 10_000
	// keepersJournal is where the keeper keeps what it acknowledged before that is in its
	// place on the disk.
	keepersJournal = ".git/choir/journal"
)

// historyNames are the parts of the history that name its newest commits, in the order in
// which they are archived before all else. What they name is there by then and stays, so
// that the archive has it whatever is committed while the rest is read: a name that moves
// from refs to packed-refs meanwhile is in both.
var historyNames = []string{".git/HEAD", ".git/refs", ".git/packed-refs"}

// exportFiles archives a tree that boxes could write. It opens files through descriptors
// below the root and follows no link. What can't be read is named in left-out.txt and keeps
// nothing else out of the archive. asleep is why the computer is not awake, nil if it is.
func exportFiles(ctx context.Context, dir string, asleep error, out *tar.Writer) error {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close() // only read from
	e := &exporting{root: root, out: out}
	if asleep != nil {
		e.leave(keepersJournal, fmt.Errorf("the computer was not awake, so what was put shortly before the machine lost power may be in this file and not in its place: %s", fault.Text(asleep)))
	}
	for _, name := range historyNames {
		if err := e.walk(ctx, name); err != nil {
			return err
		}
	}
	if err := e.walk(ctx, "."); err != nil || len(e.left) == 0 {
		return err
	}
	return e.writeLeft()
}

// walk archives what is at a name, which may be missing unless it is the root.
func (e *exporting) walk(ctx context.Context, from string) error {
	return fs.WalkDir(e.root.FS(), from, func(name string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && name == ".":
			return err
		case errors.Is(err, fs.ErrNotExist):
			return nil // it was removed in the meantime
		case err != nil:
			e.leave(name, err)
			return nil // the part of the folder that could be listed was visited
		case name == ".":
			return nil
		case from == "." && slices.Contains(historyNames, name): // it is archived already
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case len(name) > exportPath:
			e.leave(name, fmt.Errorf("its path is longer than %d bytes", exportPath))
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		return e.entry(name)
	})
}

// leave notes what is missing in the archive.
func (e *exporting) leave(name string, why error) {
	if len(e.left) == maxLeft {
		e.more++
		return
	}
	var path *fs.PathError
	if errors.As(why, &path) {
		why = path.Err
	}
	if len(name) > exportPath {
		name = name[:exportPath]
	}
	e.left = append(e.left, fmt.Sprintf("%q: %v\n", name, why))
}

func (e *exporting) writeLeft() error {
	if e.more > 0 {
		e.left = append(e.left, fmt.Sprintf("and %d others\n", e.more))
	}
	text := strings.Join(e.left, "")
	if err := e.out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "left-out.txt", Size: int64(len(text)), Mode: 0o600, Format: tar.FormatPAX}); err != nil {
		return err
	}
	_, err := io.WriteString(e.out, text)
	return err
}

// errReplaced is about a file that another one took the place of while it was opened.
var errReplaced = errors.New("it was replaced while it was read")

// replacedMost is how often a file may be replaced while it is opened before it is left out.
const replacedMost = 100

// entry archives one file, folder or link. An error is the archive's, which ends the
// export.
func (e *exporting) entry(name string) error {
	for n := 1; ; n++ {
		info, err := e.root.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			if err = e.archive(name, info); !errors.Is(err, errReplaced) {
				return err
			}
		}
		if n == replacedMost || !errors.Is(err, errReplaced) {
			e.leave(name, err)
			return nil
		}
	}
}

// archive does so for one that was found to be as info says. The error is errReplaced if
// that is no longer so, and nothing of it is in the archive then.
func (e *exporting) archive(name string, info fs.FileInfo) (err error) {
	head := &tar.Header{Name: path.Join("files", name), Mode: int64(info.Mode().Perm()), ModTime: info.ModTime(), Format: tar.FormatPAX}
	switch {
	case info.IsDir():
		head.Typeflag, head.Name = tar.TypeDir, head.Name+"/"
		return e.out.WriteHeader(head)
	case info.Mode()&fs.ModeSymlink != 0:
		if head.Linkname, err = e.root.Readlink(name); err != nil {
			e.leave(name, err)
			return nil
		}
		head.Typeflag = tar.TypeSymlink
		return e.out.WriteHeader(head)
	case !info.Mode().IsRegular():
		return nil // a socket or pipe holds nothing
	}
	f, err := e.root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // it does not block, should the file be a pipe by now
	if errors.Is(err, fs.ErrNotExist) {
		return errReplaced
	}
	if err != nil {
		e.leave(name, err)
		return nil
	}
	defer f.Close() // only read from
	st, err := f.Stat()
	if err == nil && !os.SameFile(st, info) {
		return errReplaced
	}
	if err != nil {
		e.leave(name, err)
		return nil
	}
	head.Typeflag, head.Size = tar.TypeReg, st.Size()
	if err := e.out.WriteHeader(head); err != nil {
		return err
	}
	return e.content(name, f, st.Size())
}

// content writes exactly size bytes of a file, as its header says.
func (e *exporting) content(name string, f io.Reader, size int64) error {
	from := &reading{r: f}
	n, err := io.CopyN(e.out, from, size)
	if err == nil || from.err == nil {
		return err // either all of it was written, or the archive can't be
	}
	if errors.Is(from.err, io.EOF) {
		from.err = fmt.Errorf("it became shorter while it was read: %d bytes of %d are its own, the others are zero", n, size)
	} else {
		from.err = fmt.Errorf("%d bytes of %d could be read, the others are zero: %w", n, size, from.err)
	}
	e.leave(name, from.err)
	_, err = io.CopyN(e.out, zeros{}, size-n)
	return err
}

// reading distinguishes a reader's errors from those of its copier.
type reading struct {
	r   io.Reader
	err error
}

func (r *reading) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	r.err = err
	return n, err
}

// zeros reads any number of zero bytes.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
