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

// Arrange makes the store fit to be opened for the computers whose logs are
// whole: each damaged log's files are set apart, where the server does not see
// them, by one rename that does not touch them; what was set apart and is whole
// again is put back. Where a log's files lie is all there is to know, so a
// crash between two renames leaves what the next start goes on from. With the
// report on one computer it is about that one's log. From then on an earlier version
// of ChoirOS, which would not know what is stored, refuses the directory.
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
			continue // r is about another
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
		to, n := s.Beside(0), 0
		for !s.Apart && exists(dir.Path("nats", to)) {
			n++ // it is there twice
			to = s.Beside(n)
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

// move renames durably; what is at the new place already stays there.
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

// Split gives each computer a stream of its own in a store that earlier versions
// wrote, whose logs must be whole. They are copied, event by event; the old
// store is kept aside. It says whether there was anything to do.
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
