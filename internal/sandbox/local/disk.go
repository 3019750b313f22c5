package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/sandbox/local/hostfs"
)

const (
	movedOften   = 20                     // this many moves in a row are no accident
	sampleEvery  = 100 * time.Millisecond // how often the free space is read
	walkEvery    = 500 * time.Millisecond // how often trees are walked, at most
	walkShare    = 20                     // a walk may take at most one part in this many of the time
	maxProcesses = 4096
	harmless     = 1 << 20 // on a disk that is nearly full, a box that grew less than this is not ended
)

// sampler takes the place of a disk quota. It adds up the sizes of the writable places of a
// box and kills the box when they have grown beyond the limit.
type sampler struct {
	box  *box
	dirs []*hostfs.Dir
	ctx  context.Context // ends with the box
	stop context.CancelFunc
	runs sync.WaitGroup

	mu   sync.Mutex
	now  hostfs.Size
	base hostfs.Size
}

// writesDisk says whether anything in the box can write to a disk. The places that every box has for itself
// are in memory.
func (b *box) writesDisk() bool {
	return len(b.limits.Counted) > 0 || slices.ContainsFunc(b.mounts, func(m mount) bool { return m.Mode == sandbox.ReadWrite || m.Mode == sandbox.Overlay })
}

// newSampler opens the places that are measured: what the driver keeps for the
// box, every upper, and those that the limits name.
func newSampler(b *box) (*sampler, error) {
	paths := []string{b.run}
	for _, v := range b.limits.Counted {
		at, err := b.computer.volumes.Path(v)
		if err != nil {
			return nil, err
		}
		paths = append(paths, at)
	}
	for _, m := range b.mounts {
		if m.Mode == sandbox.Overlay && m.Upper != "" {
			paths = append(paths, m.Upper)
		}
	}
	s := &sampler{box: b}
	s.ctx, s.stop = context.WithCancel(context.Background())
	for _, p := range paths {
		d, err := s.open(p)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("measure %s: %w", p, err), s.close())
		}
		s.dirs = append(s.dirs, d)
	}
	return s, nil
}

func (s *sampler) open(path string) (*hostfs.Dir, error) {
	rel, in := hostfs.Under(s.box.computer.spec.Dir, path)
	if !in {
		return hostfs.Open(path)
	}
	return s.box.computer.root.Dir(rel)
}

func (s *sampler) start() { s.runs.Go(s.run) }

// close ends the measuring and waits for that.
func (s *sampler) close() error {
	s.stop()
	s.runs.Wait()
	var errs []error
	for _, d := range s.dirs {
		errs = append(errs, d.Close())
	}
	return errors.Join(errs...)
}

func (s *sampler) last() (bytes, inodes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(0, s.now.Bytes-s.base.Bytes), max(0, s.now.Inodes-s.base.Inodes)
}

func (s *sampler) run() {
	base, err := s.measure()
	if err != nil && !errors.Is(err, hostfs.ErrMoved) { // a baseline that is too low makes the limit stricter
		if s.ctx.Err() == nil {
			s.box.end(sandbox.DiskFull, "its files can't be measured: "+err.Error())
		}
		return
	}
	s.mu.Lock()
	s.base, s.now = base, base
	s.mu.Unlock()
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	next := time.Now()
	soon := next // sooner, on a disk that is nearly full
	free := s.free()
	moved := 0
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		// If the box fills the disk faster than it can be walked, the free space shows it.
		rush := s.box.limits.DiskBytes > 0 && free-s.free() > s.box.limits.DiskBytes/4
		low := s.box.limits.DiskFree > 0 && time.Now().After(soon) && s.free() < s.box.limits.DiskFree
		if !rush && !low && time.Now().Before(next) {
			continue
		}
		begin := time.Now()
		now, err := s.measure()
		took := time.Since(begin)
		next, soon = begin.Add(max(walkEvery, walkShare*took)), begin.Add(4*took)
		free = s.free()
		s.mu.Lock()
		s.now = now
		s.mu.Unlock()
		bytes, inodes := s.last()
		if errors.Is(err, hostfs.ErrMoved) {
			if moved++; moved < movedOften {
				err = nil // what was counted so far is used
			}
		} else {
			moved = 0
		}
		switch l := s.box.limits; {
		case s.ctx.Err() != nil:
		case err != nil:
			s.box.end(sandbox.DiskFull, "its files can't be measured: "+err.Error())
		case l.DiskBytes > 0 && bytes > l.DiskBytes:
			s.box.end(sandbox.DiskFull, fmt.Sprintf("it wrote more than its %d MiB", l.DiskBytes>>20))
		case low && bytes > harmless:
			s.box.end(sandbox.DiskFull, fmt.Sprintf("the disk is nearly full, and it wrote %d MiB", bytes>>20))
		case l.DiskInodes > 0 && inodes > l.DiskInodes:
			s.box.end(sandbox.DiskFull, fmt.Sprintf("it made more than its %d files", l.DiskInodes))
		default:
			continue
		}
		return
	}
}

// free returns the free space where the writable places are.
func (s *sampler) free() int64 {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(s.dirs[0].File().Fd()), &st); err != nil {
		return 0
	}
	return int64(st.Bavail) * st.Bsize
}

// measure adds up every place, and the files that were deleted while a process of the box
// holds them open.
func (s *sampler) measure() (hostfs.Size, error) {
	var t hostfs.Tally
	if s.box.limits.DiskInodes > 0 && s.base != (hostfs.Size{}) { // for the baseline itself everything is counted
		t.Limit = s.box.limits.DiskInodes + s.base.Inodes
	}
	for _, d := range s.dirs {
		if err := t.Add(s.ctx, d); err != nil {
			return t.Size, err
		}
	}
	t.Bytes += s.deleted()
	return t.Size, nil
}

// deleted adds up regular files on disk that have no name any more but are still open.
func (s *sampler) deleted() int64 {
	seen := map[[2]uint64]bool{}
	var total int64
	for _, pid := range descendants(s.box.pid) {
		dir := "/proc/" + strconv.Itoa(pid) + "/fd"
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // it has ended, or may not be read by us
		}
		for _, e := range entries {
			link := filepath.Join(dir, e.Name())
			target, err := os.Readlink(link)
			if err != nil || !strings.HasSuffix(target, " (deleted)") {
				continue
			}
			var st unix.Stat_t
			var fs unix.Statfs_t
			if unix.Stat(link, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 0 ||
				unix.Statfs(link, &fs) != nil || fs.Type == unix.TMPFS_MAGIC {
				continue
			}
			if key := [2]uint64{uint64(st.Dev), st.Ino}; !seen[key] {
				seen[key] = true
				total += st.Blocks * 512
			}
		}
	}
	return total
}

// descendants lists a process and all its descendants.
func descendants(pid int) []int {
	out := []int{pid}
	for i := 0; i < len(out) && len(out) < maxProcesses; i++ {
		tasks, err := os.ReadDir("/proc/" + strconv.Itoa(out[i]) + "/task")
		if err != nil {
			continue
		}
		for _, t := range tasks {
			data, err := os.ReadFile("/proc/" + strconv.Itoa(out[i]) + "/task/" + t.Name() + "/children")
			if err != nil {
				continue
			}
			for _, f := range strings.Fields(string(data)) {
				if child, err := strconv.Atoi(f); err == nil {
					out = append(out, child)
				}
			}
		}
	}
	return out
}
