package datadir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/fault"
)

const (
	// DiskFloor is the free space, in bytes, below which a box that has written is ended:
	// the rest is for the log and for cleaning up.
	DiskFloor = 16 << 20
	// filesFloor is for how many more files the disk must have room before the reserve is
	// held again.
	filesFloor = 64

	reserveEvery = 2 * time.Second  // how often to try to hold a released reserve again
	reserveWait  = 20 * time.Second // how long to wait for the store once space was made
	reservePoll  = 50 * time.Millisecond
)

// Reserve is disk space reserved for the logs. It is released when an append, or something
// needed to clean up, finds the disk full, and held again when there is space.
type Reserve struct {
	dir    *Dir
	size   int64
	health func() error // the health of the logs' store
	logger *slog.Logger

	mu       sync.Mutex
	held     bool
	released time.Time

	stop context.CancelFunc
	done chan struct{}
}

// OpenReserve reserves size bytes of the directory's disk, none for 0, until Close. health
// tells whether the logs' store accepts writes now. A disk that is too full already is no
// error.
func OpenReserve(dir *Dir, size int64, health func() error, logger *slog.Logger) (*Reserve, error) {
	r := &Reserve{dir: dir, size: size, health: health, logger: logger, done: make(chan struct{})}
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	if size == 0 {
		close(r.done)
		return r, fault.Wrap("datadir.OpenReserve", dir.ReleaseReserve())
	}
	var err error
	if r.held, err = dir.reserve(size); err != nil {
		stop()
		return nil, err
	}
	if !r.held {
		logger.Warn("the disk is too full for the log's reserve", "bytes", size)
	}
	go r.keep(ctx)
	return r, nil
}

// Full makes space for an append that found none; it returns false if there is none to
// release or the store does not recover in time.
func (r *Reserve) Full(ctx context.Context) bool {
	r.mu.Lock()
	if r.held {
		if err := r.dir.ReleaseReserve(); err != nil {
			r.logger.Error("the log's reserve could not be given back", "error", err)
		} else {
			r.held, r.released = false, time.Now()
			r.logger.Warn("the disk is full; the log's reserve is given back", "bytes", r.size)
		}
	}
	until := r.released.Add(reserveWait)
	r.mu.Unlock()
	// The embedded server restarts itself when there is space.
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

// RetryWithRoom calls do, for what a person needs to clean up a full disk. If do fails for
// lack of space and there is some now, it is called once more.
func (r *Reserve) RetryWithRoom(ctx context.Context, do func() error) error {
	err := do()
	if (fault.Is(err, fault.DiskFull) || fault.NoSpace(err)) && r.Full(ctx) {
		err = do()
	}
	return err
}

// Share is how many bytes of the reserve one operation may use that is done on a full disk
// to clean up.
func (r *Reserve) Share() int64 { return r.size / 4 }

// String says how much is kept for the logs, and whether it has been given back.
func (r *Reserve) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.size == 0:
		return "nothing is kept free for the log (storage.reserve_mb is 0)"
	case !r.held:
		return fmt.Sprintf("the %d MB that are kept for the log are in use: the disk is full", r.size>>20)
	}
	return fmt.Sprintf("%d MB are kept for the log, and given back when the disk is full", r.size>>20)
}

// Check refuses operations that would fill the disk further while the reserve is released.
func (r *Reserve) Check(op string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held || r.size == 0 {
		return nil
	}
	return fault.New(op, fault.DiskFull, fault.FreeSpace,
		errors.New("the disk is full, so nothing is taken in"))
}

// Taking returns a reader of an upload's content that fails once the reserve is released:
// an upload that began before would otherwise use up the released space.
func (r *Reserve) Taking(op string, content io.Reader) io.Reader {
	return taking{reserve: r, op: op, content: content}
}

type taking struct {
	reserve *Reserve
	op      string
	content io.Reader
}

func (t taking) Read(p []byte) (int, error) {
	n, err := t.content.Read(p)
	if full := t.reserve.Check(t.op); full != nil {
		return 0, full
	}
	return n, err
}

// keep holds the reserve again once there is enough space for it and some more.
func (r *Reserve) keep(ctx context.Context) {
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

func (r *Reserve) hold() error {
	free, err := r.dir.Free()
	if err != nil || free.Bytes < r.size+2*DiskFloor || free.Files < filesFloor {
		return err
	}
	if r.held, err = r.dir.reserve(r.size); r.held {
		r.logger.Info("the log's reserve is held again", "bytes", r.size)
	}
	return err
}

// Close stops watching the reserve, which stays on the disk.
func (r *Reserve) Close() {
	r.stop()
	<-r.done
}

// reserve preallocates size bytes, which ReleaseReserve frees when the disk is full, so
// that the log can still record that. A disk that is too full already is no error: the
// returned bool says whether the reserve is held.
func (d *Dir) reserve(size int64) (bool, error) {
	const op = "datadir.reserve"
	f, err := os.OpenFile(d.Path("reserve"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return false, diskError(op, d.path, err)
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() == size {
		return true, nil
	}
	if err := unix.Fallocate(int(f.Fd()), 0, 0, size); err != nil {
		if fault.NoSpace(err) || errors.Is(err, unix.EOPNOTSUPP) {
			return false, os.Remove(f.Name())
		}
		return false, fault.Wrap(op, err)
	}
	return true, f.Truncate(size)
}

// ReleaseReserve frees the reserve, also for callers who need the space before a Reserve is
// open. It is no error if nothing is reserved.
func (d *Dir) ReleaseReserve() error {
	err := os.Remove(d.Path("reserve"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
