package git

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Reader reads objects through one long-lived `git cat-file --batch`.
type Reader struct {
	git *Program
	mu  sync.Mutex // one request at a time; guards what follows
	cmd *exec.Cmd  // nil while none runs
	in  io.WriteCloser
	out *bufio.Reader
}

// NewReader makes a Reader for a repository. It starts no process yet.
func NewReader(g *Program) *Reader { return &Reader{git: g} }

func (r *Reader) start() error {
	cmd := r.git.Command(context.Background(), "cat-file", "--batch")
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return Error(context.Background(), []string{"cat-file"}, "", err)
	}
	r.cmd, r.in, r.out = cmd, in, bufio.NewReaderSize(out, 64<<10)
	return nil
}

func (r *Reader) stop() error {
	if r.cmd == nil {
		return nil
	}
	err := r.in.Close()
	if kerr := r.cmd.Process.Kill(); kerr != nil && !errors.Is(kerr, os.ErrProcessDone) {
		err = errors.Join(err, kerr)
	}
	_ = r.cmd.Wait() // it was killed, so its status says nothing
	r.cmd = nil
	return err
}

func (r *Reader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stop()
}

// Read streams one object to w and returns its kind and size. Content beyond
// max (when max >= 0) is not delivered; the returned size is the whole.
func (r *Reader) Read(ctx context.Context, id string, max int64, w io.Writer) (kind string, size int64, err error) {
	return r.ReadWith(ctx, id, max, w, nil)
}

// ReadWith is Read; begin, when not nil, is called with kind and size before the bytes.
func (r *Reader) ReadWith(ctx context.Context, id string, max int64, w io.Writer, begin func(kind string, size int64)) (kind string, size int64, err error) {
	const op = "keeper.read"
	if !wire.IsHex(id) {
		return "", 0, fault.New(op, fault.Invalid, "", fmt.Errorf("%q is not an object id", wire.Short(id)))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return "", 0, err
	}
	if r.cmd == nil {
		if err := r.start(); err != nil {
			return "", 0, fault.Wrap(op, err)
		}
	}
	defer func() {
		if err != nil && !fault.Is(err, fault.NotFound) {
			err = errors.Join(err, r.stop()) // out of step with the process, which is restarted
		}
	}()
	if _, err := io.WriteString(r.in, id+"\n"); err != nil {
		return "", 0, fault.Wrap(op, err)
	}
	if kind, size, err = r.header(id); err != nil {
		return "", 0, fault.Wrap(op, err)
	}
	if begin != nil {
		begin(kind, size)
	}
	deliver := size
	if max >= 0 {
		deliver = min(size, max)
	}
	if _, err := io.CopyN(w, r.out, deliver); err != nil {
		return "", 0, fault.Wrap(op, err)
	}
	if _, err := io.CopyN(io.Discard, r.out, size-deliver+1); err != nil {
		return "", 0, fault.Wrap(op, err)
	}
	return kind, size, nil
}

// header reads what the process prints about an object before its bytes.
func (r *Reader) header(id string) (kind string, size int64, err error) {
	line, err := r.out.ReadString('\n')
	if err != nil {
		return "", 0, err
	}
	fields := strings.Fields(line)
	if len(fields) == 2 && fields[1] == "missing" {
		if there, err := r.git.hasLoose(id); err != nil || there { // git prints the same for an object that it can't read
			return "", 0, fault.New("", fault.Damaged, "", errors.Join(fmt.Errorf("object %s can't be read", id), err))
		}
		return "", 0, fault.New("", fault.NotFound, "", fmt.Errorf("object %s is missing", id))
	}
	if len(fields) != 3 || !strings.HasPrefix(fields[0], id) {
		return "", 0, fault.New("", fault.Internal, "", fmt.Errorf("git cat-file answered %q", wire.Short(line)))
	}
	size, err = strconv.ParseInt(fields[2], 10, 64)
	return fields[1], size, err
}

// MaxAsked is how many objects are requested before the first answer is read. So many names
// fit into the smallest possible pipe, so neither side waits for the other to read.
const MaxAsked = 90

// All reads whole objects of at most max bytes each, in order.
func (r *Reader) All(ctx context.Context, ids []string, max int64, visit func(i int, kind string, content []byte) error) (err error) {
	const op = "keeper.read"
	if len(ids) == 0 {
		return ctx.Err()
	}
	if len(ids) > MaxAsked {
		return fault.New(op, fault.Internal, "", fmt.Errorf("%d objects are asked for at once", len(ids)))
	}
	for _, id := range ids {
		if !wire.IsHex(id) || len(id) != 40 {
			return fault.New(op, fault.Invalid, "", fmt.Errorf("%q is not an object id", wire.Short(id)))
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if r.cmd == nil {
		if err := r.start(); err != nil {
			return fault.Wrap(op, err)
		}
	}
	answered := 0
	defer func() {
		if err != nil && (answered < len(ids) || !fault.Is(err, fault.NotFound)) {
			err = errors.Join(err, r.stop()) // out of step with the process, which is restarted
		}
	}()
	if _, err := io.WriteString(r.in, strings.Join(ids, "\n")+"\n"); err != nil {
		return fault.Wrap(op, err)
	}
	for i, id := range ids {
		kind, size, err := r.header(id)
		answered++
		if err != nil {
			return fault.Wrap(op, err)
		}
		if size > max {
			return fault.New(op, fault.Exhausted, "", fmt.Errorf("object %s has %d bytes; at most %d are read at once", id, size, max))
		}
		var content bytes.Buffer
		if _, err := io.CopyN(&content, r.out, size); err != nil {
			return fault.Wrap(op, err)
		}
		if _, err := r.out.Discard(1); err != nil {
			return fault.Wrap(op, err)
		}
		if err := visit(i, kind, content.Bytes()); err != nil {
			answered = 0 // the answers under way are not read any more
			return err
		}
	}
	return nil
}

// hasLoose reports whether there is a loose object's file, whatever it contains.
func (g *Program) hasLoose(id string) (bool, error) {
	if len(id) != 40 {
		return false, nil
	}
	return disk.Exists(filepath.Join(g.gitDir, "objects", id[:2], id[2:]))
}
