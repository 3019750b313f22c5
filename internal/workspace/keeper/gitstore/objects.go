package gitstore

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"choir.dev/choiros/internal/durable"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/journal"
	"choir.dev/choiros/internal/workspace/keeper/objects"
)

// looseLimit is how many objects of one call are written as files of their
// own; more become a pack, which costs one sync instead of one each.
const looseLimit = 48

// Write writes objects durably and returns their ids, in order. An
// object whose source fails with errGone has the id "" and is left out.
func (s *Store) Write(ctx context.Context, objects []objects.Object) ([]string, error) {
	if len(objects) == 0 {
		return nil, nil
	}
	if len(objects) > looseLimit {
		return s.writePack(ctx, objects)
	}
	return s.writeLoose(ctx, objects)
}

// pendingObject is an object whose content is written under a temporary name.
type pendingObject struct{ tmp, final string }

// act is what is made durable together.
type act struct {
	objects []pendingObject
	files   []journal.File
}

// makes reports whether an object is among those of the act.
func (a *act) makes(id string) bool {
	return a != nil && len(id) > 2 && slices.ContainsFunc(a.objects, func(p pendingObject) bool { return strings.HasSuffix(p.final, "/"+id[:2]+"/"+id[2:]) })
}

// Batch runs f, and makes everything that f writes durable at once at flush: objects,
// refs and records. Before that none of it can be read. When the next act begins, or flush
// has returned, it is durable.
func (s *Store) Batch(f func(flush func() error) error) error {
	if s.act != nil {
		return fault.New("keeper.write", fault.Internal, "", errors.New("an act within another"))
	}
	s.act = &act{}
	defer func() { s.act = nil }()
	err := f(func() error {
		a := *s.act
		*s.act = act{}
		return s.finish(a)
	})
	if err != nil {
		err = errors.Join(err, removeAll(s.act.objects))
		s.known = map[string]bool{} // some of these may never have been written
	}
	return err
}

func removeAll(all []pendingObject) error {
	var err error
	for _, p := range all {
		err = errors.Join(err, disk.RemoveIfThere(p.tmp))
	}
	return err
}

// keep makes files of the keeper's own durable, together with what else the act writes.
func (s *Store) keep(files ...journal.File) error {
	if s.act != nil {
		s.act.files = append(s.act.files, files...)
		return nil
	}
	return s.finish(act{files: files})
}

func (s *Store) writeLoose(ctx context.Context, objects []objects.Object) (ids []string, err error) {
	var all []pendingObject
	defer func() {
		if err != nil {
			err = errors.Join(err, removeAll(all))
		}
	}()
	ids = make([]string, len(objects))
	for i, o := range objects {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		id, tmp, err := s.deflate(o)
		if errors.Is(err, disk.ErrGone) {
			continue
		}
		if err != nil {
			return nil, err
		}
		ids[i] = id
		all = append(all, pendingObject{tmp, filepath.Join(s.objects, id[:2], id[2:])})
	}
	if s.act != nil {
		s.act.objects = append(s.act.objects, all...)
		return ids, nil
	}
	return ids, s.finish(act{objects: all})
}

// finish makes an act durable and gives what it wrote its names. If it fails, no temporary
// files are left.
func (s *Store) finish(a act) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, removeAll(a.objects))
		}
	}()
	if s.first || s.quarantine {
		return s.name(a)
	}
	if err := s.counts(); err != nil {
		return err
	}
	var large []pendingObject
	var files []journal.File
	for _, p := range a.objects {
		st, err := os.Lstat(p.tmp)
		if err != nil {
			return err
		}
		if st.Size() > journal.MaxObject {
			large = append(large, p)
			continue
		}
		content, err := os.ReadFile(p.tmp)
		if err != nil {
			return err
		}
		files = append(files, journal.File{Name: "objects/" + filepath.Base(filepath.Dir(p.final)) + "/" + filepath.Base(p.final), Content: content})
	}
	if err := s.settleLarge(large); err != nil {
		return err
	}
	if files = append(files, a.files...); len(files) == 0 {
		return nil
	}
	if err := s.OpenJournal(); err != nil {
		return err
	}
	return s.journal.Add(files, func() error {
		s.crash("journal.synced")
		return s.name(a)
	})
}

// name gives an act's objects and files their names.
func (s *Store) name(a act) error {
	for _, p := range a.objects {
		if there, err := disk.Exists(p.tmp); err != nil || !there {
			if err != nil {
				return err
			}
			continue // it was large
		}
		if _, err := s.settle(p.tmp, p.final); err != nil {
			return err
		}
	}
	return s.journal.Place(a.files)
}

// settleLarge syncs objects that are too large for the journal, before they get their
// names: git packs nothing beside a damaged object, and an existing one is taken for
// stored.
func (s *Store) settleLarge(all []pendingObject) error {
	// They are synced concurrently, to share commits of the file system's journal.
	var g errgroup.Group
	g.SetLimit(8)
	for _, p := range all {
		g.Go(func() error {
			f, err := os.Open(p.tmp)
			if err != nil {
				return err
			}
			return errors.Join(f.Sync(), f.Close())
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	dirs := map[string]bool{}
	for _, p := range all {
		made, err := s.settle(p.tmp, p.final)
		if err != nil {
			return err
		}
		dirs[filepath.Dir(p.final)] = true
		if made {
			dirs[filepath.Join(s.gitDir, "objects")] = true
		}
	}
	for d := range dirs {
		if err := durable.SyncDir(d); err != nil {
			return err
		}
	}
	return nil
}

// settle gives an object its final name, unless it exists already; then the existing one
// must be identical, or SHA-1 was tricked into a collision. made says that it is in a new
// directory.
func (s *Store) settle(tmp, final string) (made bool, err error) {
	err = os.Mkdir(filepath.Dir(final), 0o755)
	if made = err == nil; err != nil && !errors.Is(err, os.ErrExist) {
		return false, err
	}
	err = os.Link(tmp, final)
	if errors.Is(err, os.ErrExist) {
		same, cmpErr := sameInflated(tmp, final)
		if cmpErr == nil && !same && !isItself(final) {
			cmpErr = errCut
		}
		if cmpErr != nil {
			// The existing one was damaged, for example by a crash of the machine; this one
			// is whole.
			return made, os.Rename(tmp, final)
		}
		if !same {
			return made, fault.New("keeper.write", fault.Invalid, "Two different files have the same SHA-1; remove the one that was made to collide.", fmt.Errorf("object %s collides", filepath.Base(final)))
		}
		err = nil
	}
	return made, errors.Join(err, os.Remove(tmp))
}

var errCut = errors.New("the object is not what its name says")

// isItself says whether a file of the object store has the content that its name says.
func isItself(name string) bool {
	r, err := openInflated(name)
	if err != nil {
		return false
	}
	defer r.Close()
	sum := sha1.New()
	if _, err := io.Copy(sum, r); err != nil {
		return false
	}
	return hex.EncodeToString(sum.Sum(nil)) == filepath.Base(filepath.Dir(name))+filepath.Base(name)
}

func sameInflated(a, b string) (bool, error) {
	ra, err := openInflated(a)
	if err != nil {
		return false, err
	}
	defer ra.Close()
	rb, err := openInflated(b)
	if err != nil {
		return false, err
	}
	defer rb.Close()
	return sameContent(ra, rb)
}

func sameContent(a, b io.Reader) (bool, error) {
	var ba, bb [32 << 10]byte
	for {
		na, ea := io.ReadFull(a, ba[:])
		nb, eb := io.ReadFull(b, bb[:])
		for _, err := range []error{ea, eb} {
			if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				return false, err
			}
		}
		if !bytes.Equal(ba[:na], bb[:nb]) {
			return false, nil
		}
		if ea != nil || eb != nil {
			return ea != nil && eb != nil, nil
		}
	}
}

type inflated struct {
	io.ReadCloser
	f *os.File
}

func (i inflated) Close() error { return errors.Join(i.ReadCloser.Close(), i.f.Close()) }

func openInflated(name string) (io.ReadCloser, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	z, err := zlib.NewReader(bufio.NewReader(f))
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return inflated{z, f}, nil
}

// deflate writes one object to a temporary file and returns its id.
func (s *Store) deflate(o objects.Object) (id, tmp string, err error) {
	r, size, err := o.Open()
	if err != nil {
		return "", "", err
	}
	defer r.Close()
	f, err := os.CreateTemp(s.objects, "tmp_obj_choir_")
	if err != nil {
		return "", "", err
	}
	defer func() {
		err = errors.Join(err, f.Close())
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	buf := bufio.NewWriterSize(f, 32<<10)
	z := objects.Deflaters.Get().(*zlib.Writer)
	defer objects.Deflaters.Put(z)
	z.Reset(buf)
	h := sha1.New()
	w := io.MultiWriter(h, z)
	fmt.Fprintf(w, "%s %d\x00", o.Kind, size)
	if err := copyExactly(w, r, size); err != nil {
		return "", "", err
	}
	if err := errors.Join(z.Close(), buf.Flush(), f.Chmod(0o444)); err != nil {
		return "", "", err
	}
	return hex.EncodeToString(h.Sum(nil)), f.Name(), nil
}

// copyExactly copies size bytes; a source that ends early or goes on is being written to.
func copyExactly(w io.Writer, r io.Reader, size int64) error {
	n, err := io.Copy(w, io.LimitReader(r, size))
	if err != nil {
		return err
	}
	if n != size {
		return disk.ErrGone
	}
	return nil
}

// Blob returns a whole blob of at most max bytes.
func (s *Store) Blob(ctx context.Context, id string, max int64) ([]byte, error) {
	var buf bytes.Buffer
	kind, size, err := s.reads.Read(ctx, id, max, &buf)
	if err != nil {
		return nil, err
	}
	if kind != "blob" {
		return nil, fault.New("keeper.blob", fault.Invalid, "", fmt.Errorf("object %s is a %s", id, kind))
	}
	if size > max {
		return nil, fault.New("keeper.blob", fault.Exhausted, "", fmt.Errorf("object %s has %d bytes; at most %d are read at once", id, size, max))
	}
	return buf.Bytes(), nil
}
