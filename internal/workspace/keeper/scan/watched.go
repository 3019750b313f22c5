package scan

import (
	"context"
	"errors"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/watch"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// What others wrote is known without a full scan if each directory of the tree was watched
// meanwhile, ignored ones too: there a captured file could get another name.

// maxLinked is how many files with more than one name are examined each time.
const maxLinked = 1000

// watching runs a full scan, and watches the directories that it meets if only the engine
// can write: otherwise nothing could be concluded anyway.
func (s *Scanner) watching(ctx context.Context, w *walker, run func() error) error {
	still := stillOf(ctx)
	switch {
	case w.all || still.name == "" || still.writersWatched() && !s.watchCovers:
		return run()
	case still.writersWatched():
		s.watch.Again()
	default:
		if n, told := ctx.Value(watchesKey{}).(int); told {
			s.watch.Allow(n)
		}
		if err := s.watch.Begin(); err != nil {
			return err
		}
	}
	w.watch = s.watch
	err := run()
	if err != nil {
		s.watch.Lose("the scan ended early")
	}
	return errors.Join(err, s.watch.End())
}

// links notes a file that has more than one name: a write through another name is not
// reported for this one.
func (w *walker) links(p string, st disk.Stat, links uint64) {
	if w.watch == nil || !st.IsRegular() || links <= 1 {
		return
	}
	if w.linked == nil {
		w.linked = map[string]bool{}
	}
	if w.linked[p] = true; len(w.linked) > maxLinked {
		w.watch.Lose("many files have more than one name")
	}
}

// watchIgnored watches an ignored directory, with everything below it.
func (w *walker) watchIgnored(parent int, p, name string) {
	if w.watch == nil || w.watch.Lost() != "" {
		return
	}
	top, err := disk.OpenDir(parent, name)
	if err != nil {
		w.watch.Lose("a directory that is ignored can't be looked into")
		return
	}
	defer unix.Close(top)
	type below struct {
		rel string
		how watch.Kind
	}
	for todo := []below{{".", watch.IgnoredTop}}; len(todo) > 0 && w.watch.Lost() == ""; {
		d := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		subs, err := w.watchOne(top, wire.JoinPath(p, d.rel), d.rel, d.how)
		if err != nil {
			w.watch.Lose("a directory that is ignored can't be looked into")
			return
		}
		for _, sub := range subs {
			todo = append(todo, below{wire.JoinPath(d.rel, sub), watch.Ignored})
		}
	}
}

// watchOne watches one of them, and returns its subdirectories.
func (w *walker) watchOne(top int, p, rel string, how watch.Kind) (subs []string, err error) {
	if err := w.ctx.Err(); err != nil {
		return nil, err
	}
	fd, err := disk.OpenDir(top, rel)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if rel == "." {
		p = strings.TrimSuffix(p, "/.")
	}
	w.watch.Dir(fd, p, how)
	entries, err := disk.ReadDir(fd, w.share)
	if err != nil || len(entries) > w.share {
		return nil, errors.Join(err, errors.New("it is too much"))
	}
	for _, en := range entries {
		switch en.Kind {
		case unix.DT_DIR:
			subs = append(subs, en.Name)
		case unix.DT_UNKNOWN:
			return nil, errors.New("the file system does not tell directories")
		}
	}
	return subs, nil
}

// knows reports whether everything that differs from the last full scan is known under a
// stillness: because it is the same one, or because the watch reports the rest, which is
// then noted.
func (s *Scanner) knows(still stillness, seen bool) bool {
	if still.writersWatched() {
		return s.knowsByWatch()
	}
	s.noteOpened(still)
	same := s.known.still == still.name
	switch {
	case s.known.still == "":
		return false
	case same && still.at.After(s.known.ended):
		s.known.alone = true
	}
	if same && !seen {
		return true
	}
	if !same && !s.known.alone {
		return false
	}
	paths, ok := s.reported()
	if !ok {
		return false
	}
	s.note(paths)
	return true
}

// noted is when it was last noted which files were opened, and under which stillness.
type noted struct {
	still string
	at    time.Time
}

// noteOpened notes which files were opened. Nobody can write to those noted earlier, if a
// request that came after they were noted named the same stillness.
func (s *Scanner) noteOpened(still stillness) {
	if s.noted.still == still.name && still.at.After(s.noted.at) {
		s.watch.Forgive()
	}
	s.watch.Note()
	s.noted = noted{still.name, time.Now()}
}

// knowsByWatch reports whether everything that differs from the last full scan is known
// while somebody who can write is running: events report most writes, and all others go to
// files that were opened, or got their name, since nobody could write.
func (s *Scanner) knowsByWatch() bool {
	s.noted = noted{}
	if s.known.still == "" || !s.known.alone {
		return false
	}
	paths, ok := s.reportedWithOpened()
	if !ok {
		return false
	}
	s.note(paths)
	s.watchCovers = true
	return true
}

// reportedWithOpened is what the watch reports since it was last asked, with the files that
// somebody may have open and that differ from the index.
func (s *Scanner) reportedWithOpened() ([]string, bool) {
	paths, ok := s.reported()
	if !ok {
		return nil, false
	}
	s.watch.Note()
	opened, ok := s.watch.Opened()
	for _, p := range opened {
		leaf := s.Index.Leaf(p)
		if leaf == nil {
			continue // what is new was told, and what was not taken is ignored
		}
		if st, err := s.Lstat(p); err != nil || st != leaf.Stat {
			paths = append(paths, p)
		}
	}
	return paths, ok
}

// reported is what the watch reports since it was last asked.
func (s *Scanner) reported() ([]string, bool) {
	if !s.known.watched {
		return nil, false
	}
	paths, ok := s.watch.Changed(s.lstatLinks, func(p string) bool { return s.Index.Leaf(p) != nil }, func(p string) bool { return s.known.walk.linked[p] })
	s.known.watched = ok
	return paths, ok
}

func (s *Scanner) note(paths []string) {
	for _, p := range paths {
		s.Wrote(p)
	}
	for p := range s.known.walk.linked {
		s.known.dirty[p] = true
	}
}

func (s *Scanner) lstatLinks(p string) (disk.Stat, uint64, error) {
	dir, err := disk.OpenDir(s.Root, wire.ParentDir(p))
	if err != nil {
		return disk.Stat{}, 0, err
	}
	defer unix.Close(dir)
	return disk.LstatLinks(dir, baseOf(p))
}

func baseOf(p string) string { return p[strings.LastIndexByte(p, '/')+1:] }

// expect notes what, according to the watch, a full scan will find.
func (s *Scanner) expect(cap *Capture, cands []Candidate) {
	s.expected = map[string]bool{}
	for _, c := range cands {
		s.expected[c.Path] = true
	}
	for _, p := range cap.Gone {
		s.expected[p] = true
	}
}

// compare compares the result of a full scan with what the watch predicted. A watch that
// missed a change is not trusted any more.
func (s *Scanner) compare(cap *Capture) {
	if s.expected == nil {
		return
	}
	unseen := func() (out []wire.Path) {
		for _, c := range cap.Changes {
			if !s.expected[c.Path] && len(out) < maxUnseen {
				out = append(out, wire.Path(c.Path))
			}
		}
		return out
	}
	missed := unseen()
	if len(missed) > 0 { // by somebody on the host, while the scan was under way
		ask := s.reported
		if s.watchCovers {
			ask = s.reportedWithOpened
		}
		paths, ok := ask()
		if !ok {
			return
		}
		s.note(paths)
		for _, p := range paths {
			s.expected[p] = true
		}
		missed = unseen()
	}
	if len(missed) == 0 {
		return
	}
	s.known.watched = false
	if s.watchCovers { // whoever is at work may have made it just now: an event comes after what it tells
		return
	}
	_ = s.watch.Never("a change was not seen by watches, which are off until the computer wakes anew")
	if s.watchFault != nil {
		s.watchFault(missed)
	}
}

// maxUnseen is how many missed paths are named.
const maxUnseen = 10

// Unwatched says why each scan is a full one, "" when it need not be.
func (s *Scanner) Unwatched() string { return s.watch.Off() }

// Watches is how many watches there are. It may be asked at any time.
func (s *Scanner) Watches() int { return s.watch.Held() }

// Close ends the watch.
func (s *Scanner) Close() error {
	s.known.watched = false
	return s.watch.Close()
}
