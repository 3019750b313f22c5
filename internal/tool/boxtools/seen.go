package boxtools

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// Bounds of what is remembered of files, and of looking at them again.
const (
	maxSeen   = 4096     // files
	maxLooked = 64 << 20 // bytes that one look for changes reads
	maxTold   = 10       // files that are named
)

// seen is what a task's tools last read or wrote of each file, so that what others change
// meanwhile is not overwritten unread. It is safe for concurrent use.
type seen struct {
	mu    sync.Mutex
	files map[string]sight
}

// sight is a file as it was when a tool saw it.
type sight struct {
	sum   [sha256.Size]byte
	stamp stamp  // as long as it is the same, the content is taken to be
	by    string // who is known to have changed it since, or ""
}

type stamp struct {
	ino                uint64
	size, mtime, ctime int64
}

func stampOf(info fs.FileInfo) stamp {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return stamp{}
	}
	return stamp{st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano()}
}

// saw remembers the content of a file that a tool has read or written.
func (b *Box) saw(p string, data []byte) {
	s := sight{sum: sha256.Sum256(data)}
	if info, err := b.root.Lstat(p); err == nil {
		s.stamp = stampOf(info)
	}
	b.seen.mu.Lock()
	defer b.seen.mu.Unlock()
	if _, known := b.seen.files[p]; !known && len(b.seen.files) >= maxSeen {
		for other := range b.seen.files { // any: whoever needs it reads it again
			delete(b.seen.files, other)
			break
		}
	}
	b.seen.files[p] = s
}

// forget forgets one file, or all.
func (b *Box) forget(paths ...string) {
	b.seen.mu.Lock()
	defer b.seen.mu.Unlock()
	if len(paths) == 0 {
		clear(b.seen.files)
	}
	for _, p := range paths {
		delete(b.seen.files, p)
	}
}

// unchanged refuses a file that is not as this task's tools last saw it. known says that they have
// seen it.
func (b *Box) unchanged(p string, data []byte) (known bool, err error) {
	b.seen.mu.Lock()
	s, known := b.seen.files[p]
	b.seen.mu.Unlock()
	if !known || s.sum == sha256.Sum256(data) {
		return known, nil
	}
	if s.by == "" {
		s.by = "somebody else"
	}
	return true, refuse("%s has been changed by %s since you last read or wrote it; read it again before you change it", p, s.by)
}

// changedBy looks which of the files that tools have seen are other than they were, remembers who
// changed them, and says so.
func (b *Box) changedBy(who string) string {
	b.seen.mu.Lock()
	defer b.seen.mu.Unlock()
	var changed []string
	left := int64(maxLooked)
	for p, s := range b.seen.files {
		info, err := b.root.Lstat(p)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			delete(b.seen.files, p)
			changed = append(changed, p+" (removed)")
			continue
		case err != nil || s.by != "" || stampOf(info) == s.stamp || info.Size() > left:
			continue
		}
		left -= info.Size()
		data, _, err := b.load(b.at(p))
		if err != nil {
			continue // whoever changes it will see
		}
		if sha256.Sum256(data) == s.sum {
			s.stamp = stampOf(info)
		} else {
			s.by = who
			changed = append(changed, p)
		}
		b.seen.files[p] = s
	}
	if len(changed) == 0 {
		return ""
	}
	slices.Sort(changed)
	more := ""
	if n := len(changed); n > maxTold {
		changed, more = changed[:maxTold], fmt.Sprintf(" and %d more", n-maxTold)
	}
	return fmt.Sprintf("(changed since you read or wrote them, so read them again before you edit them: %s%s)\n", strings.Join(changed, ", "), more)
}
