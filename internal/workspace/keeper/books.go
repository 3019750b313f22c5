package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"choir.dev/choiros/internal/workspace/keeper/wire"
	"golang.org/x/sys/unix"
)

// bookMost bounds a file that the keeper keeps about its own work.
const bookMost = 256 << 20

// badBook is a file of the keeper's own that does not hold what it wrote.
type badBook struct {
	file string
	err  error
}

func (u *badBook) Error() string { return u.file + ": " + u.err.Error() }
func (u *badBook) Unwrap() error { return u.err }

// loadJSON reads a file that the keeper wrote. What is there in its place is
// unreadable, and waited for by nobody.
func loadJSON(name string, v any) error {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) {
		return &badBook{filepath.Base(name), errors.New("it is no file")}
	}
	if err != nil {
		return err
	}
	defer f.Close() // only read from
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() || st.Size() > bookMost {
		return &badBook{filepath.Base(name), errors.New("it is no file, or too long a one")}
	}
	raw, err := io.ReadAll(io.LimitReader(f, bookMost))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return &badBook{filepath.Base(name), err}
	}
	return nil
}

// movedOn says that a plan is not about the history as it stands.
type movedOn struct{ id, from, head string }

func (m *movedOn) Error() string {
	return fmt.Sprintf("publish %s was prepared on %s, but the newest checkpoint is %s", m.id, m.from, m.head)
}

// setAside takes a plan out of the way that can't be gone on with: its files say
// nothing that can be followed, or it is one that was done and of which only the
// result is gone. What it had displaced goes to the trash. It returns any other
// error.
func (e *Engine) setAside(ctx context.Context, id string, err error) error {
	var book *badBook
	var moved *movedOn
	if !errors.As(err, &book) && !errors.As(err, &moved) {
		return err
	}
	p, perr := e.loadPlan(id)
	if perr != nil && !errors.As(perr, &book) {
		return perr
	}
	if err := e.trashAside(id, p.Ops); err != nil {
		return err
	}
	to := e.work("unreadable", id+"-"+strconv.FormatInt(e.opts.Now().UnixNano(), 10))
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if err := os.Rename(e.planDir(id), to); err != nil {
		return err
	}
	e.opts.Logger.ErrorContext(ctx, "the record of a publish can't be followed; it is set aside, and what it displaced is in the trash", "publish", id, "at", to, "error", err)
	return errors.Join(syncDir(filepath.Dir(to)), syncDir(e.work("publish")), syncDir(e.work()))
}

// setAsides lists the records that were set aside, newest first.
func (e *Engine) setAsides() ([]wire.Aside, error) {
	entries, err := os.ReadDir(e.work("unreadable"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	when := func(a wire.Aside) string { return a.Name[len(a.Publish):] } // nanoseconds, of one length until 2286
	var out []wire.Aside
	for _, en := range entries {
		if i := strings.LastIndexByte(en.Name(), '-'); i > 0 {
			out = append(out, wire.Aside{Name: en.Name(), Publish: en.Name()[:i]})
		}
	}
	slices.SortFunc(out, func(a, b wire.Aside) int { return strings.Compare(when(b), when(a)) })
	return out[:min(len(out), maxSkips)], nil
}
