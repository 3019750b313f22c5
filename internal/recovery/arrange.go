package recovery

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/nats-io/nats.go"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/crash"
	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/durable"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/ledger"
)

// Arrange prepares the store to be opened for the computers whose logs are whole. The files
// of each damaged log are moved, by one rename, to where the server does not see them; logs
// there that are whole again are moved back. The place of a log's files is the only record
// of this, so after a crash between two renames the next start continues. If the report is
// about one computer, only that one's log is moved. From then on an earlier version of
// ChoirOS, which could not read what is stored, refuses the directory.
func Arrange(dir *datadir.Dir, r *Report) error {
	const op = "recovery.Arrange"
	if err := dir.Raise(); err != nil {
		return fault.Wrap(op, err)
	}
	streams, err := bus.Streams(dir.Path("nats"))
	if err != nil {
		return fault.Wrap(op, err)
	}
	for _, s := range streams {
		if _, looked := r.Computers[s.Of]; s.Of != "" && !looked && !r.begun[s.Of] {
			continue // the report is about another computer
		}
		if r.begun[s.Of] {
			if err := moveAside(dir, newAside(), filepath.Join("nats", s.Path)); err != nil {
				return fault.Wrap(op, err)
			}
			continue
		}
		if s.Of == "" || s.Apart == r.log(s.Of) {
			continue
		}
		crash.At("recovery.arranging")
		to, n := s.MovedPath(0), 0
		for !s.Apart && exists(dir.Path("nats", to)) {
			n++ // another copy of this log is there already
			to = s.MovedPath(n)
		}
		if err := move(dir.Path("nats", s.Path), dir.Path("nats", to)); err != nil {
			return fault.Wrap(op, err)
		}
		crash.At("recovery.arranged")
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// move renames durably; it does not replace what is at the new place.
func move(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	if _, err := os.Lstat(to); err == nil {
		return fault.New("", fault.Damaged, "Look at both: one of them must go.", errors.New(to+" is there already"))
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return errors.Join(durable.SyncDir(filepath.Dir(to)), durable.SyncDir(filepath.Dir(filepath.Dir(to))), durable.SyncDir(filepath.Dir(from)))
}

func hasShared(dir *datadir.Dir) (bool, error) {
	streams, err := bus.Streams(dir.Path("nats"))
	for _, s := range streams {
		if s.Of == "" {
			return true, err
		}
	}
	return false, err
}

// Split gives each computer a stream of its own in a store that an earlier version wrote
// with one stream for all. Its logs must be whole. They are copied event by event; the old
// store is kept aside. Split returns whether there was anything to do.
func Split(ctx context.Context, dir *datadir.Dir, r *Report, logger *slog.Logger) (bool, error) {
	const op = "recovery.Split"
	if shared, err := hasShared(dir); err != nil || !shared {
		return false, fault.Wrap(op, err)
	}
	if !r.Usable() {
		return false, nil
	}
	b, err := freshBus(ctx, dir, "", logger)
	if err != nil {
		return false, fault.Wrap(op, err)
	}
	for cid := range r.Computers {
		if err = copyLog(ctx, dir, b, cid, r.seen[cid]); err != nil {
			break
		}
	}
	if err := errors.Join(err, b.Close()); err != nil {
		return false, fault.Wrap(op, err)
	}
	logger.Info("each computer's log has a stream of its own from now on", "the old store is kept in", "aside")
	return true, fault.Wrap(op, swap(dir, journal{Aside: newAside(), Store: true}))
}

// copyLog copies a whole log out of a store.
func copyLog(ctx context.Context, dir *datadir.Dir, b *bus.Bus, cid contract.CID, last uint64) error {
	r, err := b.Refill(ctx, cid)
	if err != nil {
		return err
	}
	none := func(func(ledger.Row, error) bool) {}
	k, err := ledger.Merge(ctx, dir.Path("nats"), cid, none, func(subject string, header nats.Header, data []byte) error {
		return r.Add(ctx, subject, header, data)
	})
	if err = errors.Join(err, r.Flush(ctx)); err == nil && k.End.Sequence != last {
		err = fault.New("", fault.Damaged, "Run choir recover.", errors.New("the log of "+string(cid)+" could not be copied whole"))
	}
	return err
}
