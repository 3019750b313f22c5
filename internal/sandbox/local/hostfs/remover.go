package hostfs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/defence"
)

// Remover removes trees in the background, so that nobody waits for a tree that takes long
// to remove, or can't be removed. A tree leaves its place at once, by one rename; its
// content is removed afterwards, if necessary after a restart.
type Remover struct {
	dir  *Dir // holds what is to be removed, and is used by nothing else
	tell func(error)

	ctx  context.Context
	stop context.CancelFunc
	done sync.WaitGroup

	mu      sync.Mutex
	todo    []string
	known   map[string]bool // in todo, or being removed, or stuck
	stuck   []string
	running bool
	closed  bool
}

// NewRemover makes a remover that keeps what it has to remove in the directory name beneath
// d. Nothing else may use that directory, and it must be on the same file system as the
// trees. It continues with what an earlier remover left there. tell, which may be nil, is
// called for each tree that could not be removed; the next remover tries that again.
func NewRemover(d *Dir, name string, tell func(error)) (*Remover, error) {
	dir, err := d.MkdirAll(name, 0o700)
	if err != nil {
		return nil, fmt.Errorf("prepare to remove files: %w", err)
	}
	r := &Remover{dir: dir, tell: tell, known: map[string]bool{}}
	r.ctx, r.stop = context.WithCancel(context.Background())
	left, err := dir.ReadDir(".")
	if err != nil {
		r.stop()
		return nil, errors.Join(err, dir.Close())
	}
	for _, e := range left {
		r.add(e.Name())
	}
	return r, nil
}

// Take moves what is at name beneath d away and removes it later. If there is nothing, that
// is no error.
func (r *Remover) Take(d *Dir, name string) error {
	at, err := d.parent(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer at.Close()
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return errors.New("nothing is removed any more: the computer is closed")
	}
	r.mu.Unlock()
	as := rand.Text()
	err = move(at, path.Base(name), r.dir, as)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	r.add(as)
	return nil
}

func (r *Remover) add(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known[name] || r.closed {
		return
	}
	r.known[name] = true
	r.todo = append(r.todo, name)
	if !r.running {
		r.running = true
		r.done.Go(r.run)
	}
}

// run removes one tree after the other and ends when there is none left.
func (r *Remover) run() {
	for {
		r.mu.Lock()
		if len(r.todo) == 0 || r.closed {
			r.running = false
			r.mu.Unlock()
			return
		}
		name := r.todo[0]
		r.todo = r.todo[1:]
		r.mu.Unlock()
		err := r.remove(name)
		if r.ctx.Err() != nil {
			continue
		}
		r.mu.Lock()
		delete(r.known, name)
		if err != nil {
			r.stuck = append(r.stuck, name)
		}
		r.mu.Unlock()
		if err != nil && r.tell != nil {
			r.tell(fmt.Errorf("files that are no longer needed can't be removed and stay in %s: %w", r.dir.file.Name(), err))
		}
	}
}

func (r *Remover) remove(name string) error {
	if defence.Off(defence.RemoveLifting) {
		return os.RemoveAll(path.Join(proc(r.dir.fd()), name))
	}
	return r.dir.RemoveAll(r.ctx, name)
}

// Stuck lists the trees, by name in the remover's directory, that could not be removed.
func (r *Remover) Stuck() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.stuck)
}

// Close interrupts the removal and waits for its goroutine.
func (r *Remover) Close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.stop()
	r.done.Wait()
	return r.dir.Close()
}
