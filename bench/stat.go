package bench

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/bench/report"
)

// times are the durations of many tries.
type times []time.Duration

// timed adds how long f takes.
func (t *times) timed(f func() error) error {
	at := time.Now()
	err := f()
	*t = append(*t, time.Since(at))
	return err
}

// p returns a quantile, 0 for none.
func (t times) p(q float64) time.Duration {
	if len(t) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(t))
	return s[min(len(s)-1, int(q*float64(len(s))))]
}

func (t times) p50() time.Duration { return t.p(0.5) }

// ms is the median in milliseconds.
func (t times) ms() *report.Quantity { return millis(t.p50()) }

func millis(d time.Duration) *report.Quantity {
	return &report.Quantity{Value: float64(d) / 1e6, Unit: "ms"}
}

// over is a/b, 0 when b is 0.
func over(a, b time.Duration) float64 {
	if b <= 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// fastest compares the fastest tenth of both sides, which a busy machine disturbs least. It
// is shown beside the medians, which are compared with the targets.
func fastest(a, b times) string {
	return fmt.Sprintf(" Of the fastest tenth of each: %s.", report.Quantity{Value: over(a.p(0.1), b.p(0.1)), Unit: "×"})
}

// rounds counts from 0 to n, or to a few in a tiny run. On a machine so busy that limit
// passes, it stops early, but not before least rounds.
func (e *env) rounds(n, least int, limit time.Duration) iter.Seq[int] {
	if e.Tiny {
		n, least = 1, 1
	}
	return func(yield func(int) bool) {
		end := time.Now().Add(limit)
		for i := range n {
			if i >= least && time.Now().After(end) || !yield(i) {
				return
			}
		}
	}
}

// syncer appends some bytes to a file and syncs it, over and over, which shows what one durable
// write costs on this disk now.
type syncer struct {
	f *os.File
	b []byte
}

func newSyncer(dir string) (*syncer, error) {
	f, err := os.OpenFile(filepath.Join(dir, "fsync"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	return &syncer{f: f, b: make([]byte, 700)}, err
}

func (s *syncer) sync() error {
	_, err := s.f.Write(s.b)
	return errors.Join(err, s.f.Sync())
}

func (s *syncer) Close() error { return s.f.Close() }

// settle syncs dir's file system.
func settle(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd()))
}
