package local

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/sandbox"
)

const (
	maxDepth     = 256
	sampleEvery  = 100 * time.Millisecond // how often free space is looked at
	walkEvery    = 500 * time.Millisecond // how often trees are walked, at most
	walkShare    = 20                     // a walk may take one part in so many of the time
	maxProcesses = 4096
	harmless     = 1 << 20 // growth for which no box is ended on a disk that is nearly full
)

// sampler stands in for a quota. It adds up what lies in the writable places of
// a box and kills the box when that has grown beyond the limit. It opens no
// file and follows no link.
type sampler struct {
	b     *box
	paths []string

	mu   sync.Mutex
	now  footprint
	base footprint
}

type footprint struct{ bytes, inodes int64 }

func newSampler(b *box) *sampler {
	paths := append([]string{b.run}, b.limits.DiskPaths...)
	for _, m := range b.spec.Mounts {
		if m.Mode == sandbox.Overlay && m.Upper != "" {
			paths = append(paths, m.Upper)
		}
	}
	return &sampler{b: b, paths: paths}
}

func (s *sampler) last() (bytes, inodes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(0, s.now.bytes-s.base.bytes), max(0, s.now.inodes-s.base.inodes)
}

func (s *sampler) run() {
	base, err := s.measure()
	if err != nil {
		s.b.end(sandbox.DiskFull, "its files can't be measured: "+err.Error())
		return
	}
	s.mu.Lock()
	s.base, s.now = base, base
	s.mu.Unlock()
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	next := time.Now()
	soon := next // on a disk that is nearly full
	free := s.free()
	for {
		select {
		case <-s.b.done:
			return
		case <-tick.C:
		}
		// Filling faster than walks come shows as vanishing free space.
		rush := s.b.limits.DiskBytes > 0 && free-s.free() > s.b.limits.DiskBytes/4
		low := s.b.limits.DiskFree > 0 && time.Now().After(soon) && s.free() < s.b.limits.DiskFree
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
		switch l := s.b.limits; {
		case err != nil:
			s.b.end(sandbox.DiskFull, "its files can't be measured: "+err.Error())
		case l.DiskBytes > 0 && bytes > l.DiskBytes:
			s.b.end(sandbox.DiskFull, fmt.Sprintf("it wrote more than its %d MiB", l.DiskBytes>>20))
		case low && bytes > harmless:
			s.b.end(sandbox.DiskFull, fmt.Sprintf("the disk is nearly full, and it wrote %d MiB", bytes>>20))
		case l.DiskInodes > 0 && inodes > l.DiskInodes:
			s.b.end(sandbox.DiskFull, fmt.Sprintf("it made more than its %d files", l.DiskInodes))
		default:
			continue
		}
		return
	}
}

// free is the free space where the writable places are.
func (s *sampler) free() int64 {
	var st unix.Statfs_t
	if err := unix.Statfs(s.paths[0], &st); err != nil {
		return 0
	}
	return int64(st.Bavail) * st.Bsize
}

// measure walks every place, and adds files that were deleted while a process
// of the box holds them open.
func (s *sampler) measure() (footprint, error) {
	w := walker{seen: map[[2]uint64]bool{}, limit: s.b.limits.DiskInodes}
	if w.limit > 0 {
		s.mu.Lock()
		w.limit += s.base.inodes
		s.mu.Unlock()
		if s.base == (footprint{}) { // the baseline itself is counted in full
			w.limit = 0
		}
	}
	for _, p := range s.paths {
		if err := w.walk(unix.AT_FDCWD, p, 0); err != nil {
			return w.footprint, err
		}
	}
	w.bytes += s.deleted()
	return w.footprint, nil
}

type walker struct {
	footprint
	seen  map[[2]uint64]bool // files with several names, counted once
	limit int64              // stop when more inodes were found; 0: don't
}

func (w *walker) walk(at int, name string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("directories are nested deeper than %d", maxDepth)
	}
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NOATIME, 0)
	if err == unix.EPERM {
		fd, err = unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	}
	switch err {
	case nil:
	case unix.ENOENT, unix.ENOTDIR, unix.ELOOP:
		return nil // it changed meanwhile
	case unix.EACCES:
		return w.unreadable(at, name, depth)
	default:
		return fmt.Errorf("open %s: %w", name, err)
	}
	dir := os.NewFile(uintptr(fd), name)
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(1024)
		for _, n := range names {
			if err := w.count(fd, n, depth); err != nil {
				return err
			}
		}
		if err != nil || len(names) == 0 {
			return nil // the end; a directory removed meanwhile ends too
		}
		if w.limit > 0 && w.inodes > w.limit {
			return nil
		}
	}
}

// unreadable opens a directory that the box closed to others. The box's user is
// this process's, so it may be opened up; the box sees the mode change.
func (w *walker) unreadable(at int, name string, depth int) error {
	if err := unix.Fchmodat(at, name, 0o700, unix.AT_SYMLINK_NOFOLLOW); err != nil && err != unix.ENOENT {
		return fmt.Errorf("open %s: %w", name, err)
	}
	if depth > maxDepth {
		return nil
	}
	return w.walk(at, name, depth+1)
}

func (w *walker) count(at int, name string, depth int) error {
	var st unix.Stat_t
	if err := unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil // gone meanwhile
	}
	if st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		key := [2]uint64{uint64(st.Dev), st.Ino}
		if w.seen[key] {
			return nil
		}
		w.seen[key] = true
	}
	w.inodes++
	w.bytes += st.Blocks * 512
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return w.walk(at, name, depth+1)
	}
	return nil
}

// deleted adds up regular files on disk that have no name any more.
func (s *sampler) deleted() int64 {
	seen := map[[2]uint64]bool{}
	var total int64
	for _, pid := range descendants(s.b.pid) {
		dir := "/proc/" + strconv.Itoa(pid) + "/fd"
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // ended, or not ours to read
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

// descendants lists a process and all that come from it.
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
