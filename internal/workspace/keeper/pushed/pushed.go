package pushed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/objects"
	"choir.dev/choiros/internal/workspace/keeper/publish"
	"choir.dev/choiros/internal/workspace/keeper/scan"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Receiver takes pushes into one store.
type Receiver struct {
	store   *gitstore.Store
	scanner *scan.Scanner
	moves   *publish.Mover
	alone   func(func() error) error
	limits  wire.Limits
	crash   func(point string)
}

// Options say what takes pushes.
type Options struct {
	Store   *gitstore.Store
	Scanner *scan.Scanner
	Moves   *publish.Mover
	// Alone runs a function that must not run beside a change of the tree or its history;
	// it refuses if the history can't be read.
	Alone  func(func() error) error
	Limits wire.Limits
	Crash  func(point string)
}

// New returns a Receiver for a store.
func New(o Options) *Receiver {
	return &Receiver{store: o.Store, scanner: o.Scanner, moves: o.Moves, alone: o.Alone, limits: o.Limits, crash: o.Crash}
}

// mostBehind is how many checkpoints there may be since the one that a push is based on.
const mostBehind = 1000

// Receive takes what a push brings, beside the store: nobody waits for it, and the store
// does not have it until a publish of it is begun. What it checks stays true until then, for
// the history only grows; what does not, the publish checks.
func (r *Receiver) Receive(ctx context.Context, req wire.ReceiveRequest, from io.Reader) (reply wire.ReceiveReply, err error) {
	const op = "keeper.Receive"
	if err := publish.CheckPlanID(req.ID); err != nil {
		return reply, fault.Wrap(op, err)
	}
	beside, err := r.store.MakeQuarantine(req.ID)
	if err != nil {
		return reply, fault.Wrap(op, err)
	}
	defer func() {
		if err = errors.Join(err, beside.CloseQuarantine()); err != nil {
			err = fault.Wrap(op, errors.Join(err, r.store.DropQuarantine(req.ID)))
		}
	}()
	f, err := os.OpenFile(beside.QuarantinePath("list"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return reply, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	l := &inspection{Receiver: r, spool: &spool{file: f}}
	if err := l.fill(from, min(req.Most, r.limits.NewBytes), r.limits.FileBytes); err != nil {
		return reply, err
	}
	var head string
	if err := r.alone(func() error { head, l.files = r.moves.Head, r.scanner.Index.Count; return nil }); err != nil {
		return reply, err
	}
	if err := r.newest(ctx, head, req.Base); err != nil {
		return reply, err
	}
	if err := l.all(ctx, req.Base, req.Tip); err != nil {
		return reply, err
	}
	if err := l.differs(ctx, req.Base, req.Tip); err != nil {
		return reply, err
	}
	r.crash("push.checked")
	if err := l.write(ctx, beside); err != nil {
		return reply, err
	}
	r.crash("push.received")
	content, err := l.content(req.Tip)
	_, message, _ := bytes.Cut(content, []byte("\n\n"))
	first, _, _ := strings.Cut(strings.TrimSpace(string(message)), "\n")
	return wire.ReceiveReply{Commits: l.commits, Subject: gitstore.OneLine(strings.ToValidUTF8(first[:min(len(first), 200)], "\uFFFD"))}, err
}

// Open returns the store with what Receive took under an ID, beside all that the history
// has. Errors: fault.NotFound.
func (r *Receiver) Open(id string) (*gitstore.Store, error) {
	if err := publish.CheckPlanID(id); err != nil {
		return nil, err
	}
	return r.store.OpenQuarantine(id)
}

// Drop removes what Receive took under an ID, if no publish of it was begun.
func (r *Receiver) Drop(id string) error { return r.store.DropQuarantine(id) }

// newest ensures that a commit is one of the last mostBehind checkpoints.
func (r *Receiver) newest(ctx context.Context, head, base string) error {
	id := head
	for range mostBehind {
		if id == base {
			return nil
		}
		c, err := r.store.Commit(ctx, id)
		if err != nil {
			return err
		}
		if id = c.Parent; id == "" {
			break
		}
	}
	return behind()
}

// small is how many bytes of objects are worth no pack.
const small = 1 << 20

// write writes all objects, each after the objects that it names.
func (l *inspection) write(ctx context.Context, to *gitstore.Store) error {
	var ids []string
	bytes := int64(0)
	for _, kind := range []string{blobKind, treeKind, commitKind} {
		for _, id := range l.order {
			if l.at[id].kind == kind {
				ids = append(ids, id)
				bytes += l.at[id].size
			}
		}
	}
	toWrite := make([]objects.Object, len(ids))
	for i, id := range ids {
		toWrite[i] = objects.Named(l.at[id].kind, func() (io.ReadCloser, int64, error) {
			l.crash("push.writing")
			return l.open(id)
		})
	}
	put := to.Write
	if bytes > small {
		put = to.PackQuarantined
	}
	wrote, err := put(ctx, toWrite)
	if err == nil && !slices.Equal(wrote, ids) {
		err = fault.New("", fault.Internal, "", fmt.Errorf("of %d objects not all were written", len(ids)))
	}
	return err
}
