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
	"choir.dev/choiros/internal/workspace/keeper/publish"
	"choir.dev/choiros/internal/workspace/keeper/scan"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Receiver takes pushes into one store.
type Receiver struct {
	store  *gitstore.Store
	scan   *scan.Scanner
	moves  *publish.Mover
	alone  func(func() error) error
	limits wire.Limits
	crash  func(point string)
}

// Options say what takes pushes.
type Options struct {
	Store *gitstore.Store
	Look  *scan.Scanner
	Moves *publish.Mover
	// Alone runs a function that must not run beside a change of the tree or its history;
	// it refuses if the history can't be read.
	Alone  func(func() error) error
	Limits wire.Limits
	Crash  func(point string)
}

// New returns a Receiver for a store.
func New(o Options) *Receiver {
	return &Receiver{store: o.Store, scan: o.Look, moves: o.Moves, alone: o.Alone, limits: o.Limits, crash: o.Crash}
}

// mostBehind is how many checkpoints there may be since the one that a push is based on.
const mostBehind = 1000

// Receive takes what a push brings. The object list is read before Alone is entered, so
// that a slow sender makes nobody else wait.
func (r *Receiver) Receive(ctx context.Context, req wire.ReceiveRequest, from io.Reader) (reply wire.ReceiveReply, err error) {
	const op = "keeper.Receive"
	f, err := os.CreateTemp(r.store.Work(), "incoming-push-*")
	if err != nil {
		return reply, fault.Wrap(op, err)
	}
	defer func() { err = fault.Wrap(op, errors.Join(err, f.Close(), os.Remove(f.Name()))) }()
	l := &look{Receiver: r, spool: &spool{file: f}}
	if err := l.fill(from, min(req.Most, r.limits.NewBytes), r.limits.FileBytes); err != nil {
		return reply, err
	}
	err = r.alone(func() error {
		if err := r.newest(ctx, req.Base); err != nil {
			return err
		}
		if err := l.all(ctx, req.Base, req.Tip); err != nil {
			return err
		}
		if err := l.differs(ctx, req.Base, req.Tip); err != nil {
			return err
		}
		return l.write(ctx)
	})
	if err != nil {
		return reply, err
	}
	r.crash("push.received")
	content, err := l.content(req.Tip)
	_, message, _ := bytes.Cut(content, []byte("\n\n"))
	first, _, _ := strings.Cut(strings.TrimSpace(string(message)), "\n")
	return wire.ReceiveReply{Commits: l.commits, Subject: gitstore.OneLine(strings.ToValidUTF8(first[:min(len(first), 200)], "\uFFFD"))}, err
}

// newest ensures that a commit is one of the last mostBehind checkpoints.
func (r *Receiver) newest(ctx context.Context, base string) error {
	id := r.moves.Head
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

// write writes all objects, each after the objects that it names.
func (l *look) write(ctx context.Context) error {
	var ids []string
	for _, kind := range []string{blobKind, treeKind, commitKind} {
		for _, id := range l.order {
			if l.at[id].kind == kind {
				ids = append(ids, id)
			}
		}
	}
	objects := make([]gitstore.Object, len(ids))
	for i, id := range ids {
		objects[i] = gitstore.From(l.at[id].kind, func() (io.ReadCloser, int64, error) { return l.open(id) })
	}
	wrote, err := l.store.Write(ctx, objects)
	if err == nil && !slices.Equal(wrote, ids) {
		err = fault.New("", fault.Internal, "", fmt.Errorf("of %d objects not all were written", len(ids)))
	}
	return err
}
