package publish

import (
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/workspace/keeper/disk"
)

// Between the machine's end and the start that does acts again, or after one that died over
// it, somebody may write a file by hand: they saw what the end had left, and went on from
// that. It is newer than everything that was acknowledged before, so it stays. What was put
// there is kept by the next checkpoint.

// noteRestart says from when on what is written is newer than acts which are done again. Two
// clocks have to agree: the machine had started again, and the last of the acts was over. A
// clock that was set back meanwhile has an act done over something newer, which is in the
// trash then, and never the other way round.
func (mv *Mover) noteRestart(restarted time.Time, acts []unsettled) {
	mv.restarted = 0
	if restarted.IsZero() {
		return
	}
	mv.restarted = restarted.UnixNano()
	for _, u := range acts {
		mv.restarted = max(mv.restarted, (u.entry.At+1)*1e6)
	}
}

// byHand reports whether a file or link that has a path, whose folder is open, was written
// since the machine started again. What a start made of the acts before this one was not. In
// a copy of all files, whose times may be the copy's, it is never said.
func (s state) byHand(dir int, p string) (bool, error) {
	if s.mv.restarted == 0 || s.copied {
		return false, nil
	}
	st, err := disk.Lstat(dir, path.Base(p))
	// Programs may give a file any date, also one to come, but not when its inode was changed.
	if err != nil || st.IsDir() || min(st.Mtime, st.Ctime) <= s.mv.restarted {
		return false, disk.IgnoreUnreachable(err)
	}
	in, err := at(dir, path.Base(p))
	if err != nil {
		return false, err
	}
	if i := slices.IndexFunc(s.before, func(b unsettled) bool { return b.made(in) }); i >= 0 {
		put := s.before[i].entry.New
		now, other, err := s.mv.store.EntryAt(dir, path.Base(p), put)
		if err != nil || !other && now == put {
			return false, err
		}
	}
	s.mv.logger.Warn("a file was written after the machine's end and before this start: it stays, and what was changed there before the end is not done again", "path", p)
	return true, nil
}

// handWritten is byHand of a live path.
func (s state) handWritten(p string) (bool, error) {
	dir, in, err := s.mv.openNamed(p)
	if err != nil || in == (Inode{}) {
		return false, err
	}
	defer unix.Close(dir)
	return s.byHand(dir, p)
}
