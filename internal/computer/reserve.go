package computer

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/fault"
)

const (
	// diskFloor is the free space below which a box that has written is ended:
	// what is left is for the log and for cleaning up.
	diskFloor = 16 << 20
	// filesFloor is how many files it must be possible to make before the disk
	// counts as one that has room again.
	filesFloor = 64

	reserveEvery = 2 * time.Second  // how often a released reserve is tried to be held again
	reserveWait  = 20 * time.Second // for the store to come back once space was made
	reservePoll  = 50 * time.Millisecond
)

// reserve is disk space kept for the logs. It is given back when an append, or what one
// needs to clean up, finds the disk full, and held again when there is space.
type reserve struct {
	dir    *datadir.Dir
	size   int64
	health func() error // of the logs' store
	logger *slog.Logger

	mu       sync.Mutex
	held     bool
	released time.Time

	stop context.CancelFunc
	done chan struct{}
}

func openReserve(dir *datadir.Dir, size int64, health func() error, logger *slog.Logger) (*reserve, error) {
	r := &reserve{dir: dir, size: size, health: health, logger: logger, done: make(chan struct{})}
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	if size == 0 {
		close(r.done)
		return r, fault.Wrap("computer.reserve", dir.Release())
	}
	var err error
	if r.held, err = dir.Reserve(size); err != nil {
		stop()
		return nil, err
	}
	if !r.held {
		logger.Warn("the disk is too full for the log's reserve", "bytes", size)
	}
	go r.keep(ctx)
	return r, nil
}

// full makes space for an append that found none; false says that there is none
// to give.
func (r *reserve) full(ctx context.Context) bool {
	r.mu.Lock()
	if r.held {
		if err := r.dir.Release(); err != nil {
			r.logger.Error("the log's reserve could not be given back", "error", err)
		} else {
			r.held, r.released = false, time.Now()
			r.logger.Warn("the disk is full; the log's reserve is given back", "bytes", r.size)
		}
	}
	until := r.released.Add(reserveWait)
	r.mu.Unlock()
	// The store starts itself anew when there is space.
	for time.Now().Before(until) {
		if r.health() == nil {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(reservePoll):
		}
	}
	return false
}

// spaced does what a person needs even on a full disk, so as to clean up; do
// is done again when it found no space and there is some now.
func (r *reserve) spaced(ctx context.Context, do func() error) error {
	err := do()
	if (fault.Is(err, fault.DiskFull) || fault.NoSpace(err)) && r.full(ctx) {
		err = do()
	}
	return err
}

// check refuses what would only fill the disk further while the log lives in
// its reserve.
func (r *reserve) check(op string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held || r.size == 0 {
		return nil
	}
	return fault.New(op, fault.DiskFull, fault.FreeSpace,
		errors.New("the disk is full, so nothing is taken in"))
}

// keep holds the reserve again once there is space for it and as much besides.
func (r *reserve) keep(ctx context.Context) {
	defer close(r.done)
	tick := time.NewTicker(reserveEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		r.mu.Lock()
		if !r.held {
			if err := r.hold(); err != nil {
				r.logger.Warn("the log's reserve could not be held again", "error", err)
			}
		}
		r.mu.Unlock()
	}
}

func (r *reserve) hold() error {
	free, err := r.dir.Free()
	if err != nil || free.Bytes < r.size+2*diskFloor || free.Files < filesFloor {
		return err
	}
	if r.held, err = r.dir.Reserve(r.size); r.held {
		r.logger.Info("the log's reserve is held again", "bytes", r.size)
	}
	return err
}

func (r *reserve) close() {
	r.stop()
	<-r.done
}
