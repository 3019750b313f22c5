package boxtools

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
)

// Bounds of the output that is kept of commands.
const (
	keptHead  = 7 << 20  // bytes at the beginning of each
	keptTail  = 1 << 20  // and at its end; together no more than what can be read
	keptFiles = 64       // of so many commands
	keptTotal = 64 << 20 // and so many bytes in all
	keptShort = 2 << 10  // output that is shown whole and shorter is not kept
)

// kept is a folder of the box's own, beside the workspace, with what commands wrote. It is made at the
// first command. It is safe for concurrent use.
type kept struct {
	mu    sync.Mutex
	dir   string
	root  *os.Root
	n     int
	files []keptOutput
}

type keptOutput struct {
	name string
	size int64
}

// made is a file in the folder.
type made struct {
	root *os.Root
	name string
	path string // for commands, and for whoever reads it
	file *os.File
}

func (m made) remove() { _ = m.root.Remove(m.name) } // a command may have done so

// create makes a file with a name that no command can have taken before, in a folder that is made anew
// if a command has removed it.
func (k *kept) create(ending string) (made, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for try := 0; ; try++ {
		if k.root == nil {
			dir, err := os.MkdirTemp("", "choir-output-")
			if err != nil {
				return made{}, err
			}
			if k.root, err = os.OpenRoot(dir); err != nil {
				return made{}, err
			}
			k.dir = dir
		}
		k.n++
		m := made{root: k.root, name: fmt.Sprintf("%d-%s.%s", k.n, strings.ToLower(rand.Text()[:6]), ending)}
		m.path = path.Join(k.dir, m.name)
		var err error
		if m.file, err = m.root.OpenFile(m.name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err == nil {
			return m, nil
		}
		if !errors.Is(err, fs.ErrNotExist) || try > 0 {
			return made{}, err
		}
		_ = k.root.Close() // nothing is in it any more
		k.root, k.files = nil, nil
	}
}

// find is a path in the folder, if p is one.
func (k *kept) find(p string) (place, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.root == nil {
		return place{}, false
	}
	rel, ok := strings.CutPrefix(p, k.dir+"/")
	if !ok || !filepath.IsLocal(rel) || strings.IndexByte(p, 0) >= 0 {
		return place{}, false
	}
	return place{k.root, path.Clean(rel), path.Clean(p)}, true
}

// done counts a file that is complete, and removes the oldest ones that are too many.
func (k *kept) done(name string, size int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.root == nil {
		return // the box is being closed
	}
	k.files = append(k.files, keptOutput{name, size})
	total := int64(0)
	for _, f := range k.files {
		total += f.size
	}
	for len(k.files) > 1 && (len(k.files) > keptFiles || total > keptTotal) {
		_ = k.root.Remove(k.files[0].name) // a command may have removed it
		total -= k.files[0].size
		k.files = k.files[1:]
	}
}

func (k *kept) close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.root == nil {
		return nil
	}
	err := errors.Join(k.root.Close(), os.RemoveAll(k.dir))
	k.root = nil
	return err
}

// sink takes what a command writes to both of its streams, in its order: into a file as far as that is
// bounded, and the end of what is longer into memory. It is safe for concurrent use.
type sink struct {
	mu    sync.Mutex
	kept  *kept
	made        // without a file, if none could be made
	bad   error // why the file has not got everything
	n     int64 // bytes that were written
	saved int64 // of them, how many are in the file
	tail  ring
	shown headTail
	more  chan struct{} // closed at the next write
}

// sink makes a file for a command's output. Where none can be made, output is kept in memory only.
func (k *kept) sink() *sink {
	s := &sink{kept: k, more: make(chan struct{})}
	s.made, s.bad = k.create("txt")
	return s
}

func (s *sink) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n += int64(len(p))
	_, _ = s.shown.Write(p) // never fails
	rest := p
	if s.file != nil && s.bad == nil && s.saved < keptHead {
		k := min(keptHead-s.saved, int64(len(p)))
		n, err := s.file.WriteAt(p[:k], s.saved)
		s.saved, s.bad = s.saved+int64(n), err
		rest = p[n:]
	}
	s.tail.write(rest, keptTail)
	close(s.more)
	s.more = make(chan struct{})
	return len(p), nil
}

// next is a channel that is closed when more has been written than n bytes.
func (s *sink) next(n int64) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n > n {
		done := make(chan struct{})
		close(done)
		return done
	}
	return s.more
}

// since is what was written behind the first n bytes, as far as it is kept, and how much was written.
func (s *sink) since(n int64) (string, int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out strings.Builder
	if s.file != nil && n < s.saved {
		_, err := io.Copy(&out, io.NewSectionReader(s.file, n, s.saved-n))
		if err != nil {
			fmt.Fprintf(&out, "\n[… it could not be read: %v …]\n", err)
		}
		n = s.saved
	}
	begins := s.n - int64(len(s.tail.buf))
	if n < begins {
		fmt.Fprintf(&out, "\n[… %d bytes left out …]\n", begins-n)
		n = begins
	}
	out.WriteString(s.tail.String()[n-begins:])
	return clean(out.String()), s.n
}

// end completes the file, and removes it if nobody needs it. It returns what is told of it, or "".
func (s *sink) end(always bool) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return s.told()
	}
	if s.bad == nil && len(s.tail.buf) > 0 {
		gap := ""
		if lost := s.n - s.saved - int64(len(s.tail.buf)); lost > 0 {
			gap = fmt.Sprintf("\n[… %d bytes left out …]\n", lost)
		}
		_, s.bad = s.file.WriteAt([]byte(gap+s.tail.String()), s.saved)
	}
	if s.n <= keptShort && !always {
		s.remove()
		return ""
	}
	s.kept.done(s.name, s.saved+int64(len(s.tail.buf)))
	return s.told()
}

// told says where the output is.
func (s *sink) told() string {
	switch {
	case s.file == nil:
		return fmt.Sprintf("the output could not be kept: %v", s.bad)
	case s.bad != nil:
		return fmt.Sprintf("the first %d bytes are in %s, no more could be written: %v", s.saved, s.path, s.bad)
	}
	return "the output is in " + s.path + ", for read and grep"
}

// close closes the file, which stays where it is.
func (s *sink) close() {
	if s.file != nil {
		_ = s.file.Close() // what could not be written, its end has said
	}
}

// show is an output as it is told: whole, or its beginning and end, and where all of it is.
func show(text, where string) (string, bool) {
	rest := ""
	if where != "" {
		rest = "; " + where
	}
	said, cut := ends(text, maxShown-1024, rest)
	if !cut && where != "" {
		said = strings.TrimSuffix(said, "\n") + "\n(" + where + ")\n"
	}
	return said, cut
}
