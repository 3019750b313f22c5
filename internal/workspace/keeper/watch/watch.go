package watch

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Watch watches the directories of one tree. It is used by one goroutine at a time.
type Watch struct {
	fd    int
	max   int          // directories
	held  atomic.Int64 // the number of inotify watches, of both kinds
	never string       // why there are none and never will be; "" when there may be
	round int          // the number of full scans so far
	dirs  map[int32]dir
	names map[place]*nameState
	left  map[uint32]kind // what was moved away from a name, by the move's cookie
	lost  string          // why not everything is known; "" when it is
	rest  int             // for how many scans nothing is watched
	off   string          // why the newest scan left nothing watched; "" when it did not
	opens opens
	again bool // whether the scan under way finds everything watched already
}

// dir is a directory that is watched.
type dir struct {
	path  string
	round int  // in which it was met last
	how   Kind // how scans treat it
}

// Kind says how a scan treats a directory.
type Kind int

const (
	Scanned    Kind = iota // its files are scanned
	IgnoredTop             // it is ignored: the scan reports that it contains something
	Ignored                // it is in one that is ignored
)

type place struct {
	dir  int32
	name string
}

// kind is how a name came to exist.
type kind int

const (
	was    kind = iota // the scan met it
	came               // somebody made it, linked it or moved it there
	placed             // it was moved there from an unwatched place, which only the engine can do
	none
)

// nameState is what happened to a name since the last scan: whether there was a file all
// the time, and whether the name came to mean another one.
type nameState struct {
	now   kind
	named bool // another file has the name, or none
}

const (
	naming  = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO
	always  = naming | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR
	content = unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_CLOSE_WRITE
	// maxNames bounds what is remembered between two scans, maxEvents what is read at once.
	maxNames  = 5000
	maxEvents = 1 << 20
	// restFor is for how many scans watching is not tried when there were too many
	// directories.
	restFor = 16
)

// New makes a Watch; at most max directories will be watched, and none ever if it is
// negative.
func New(max int) *Watch {
	w := &Watch{fd: -1, max: max, lost: "nothing was scanned yet", opens: opens{fd: -1}}
	if max < 0 {
		w.never = "watching is off"
	}
	return w
}

// Never ends the watching for good, for the given reason.
func (w *Watch) Never(why string) error {
	w.never, w.off = why, why
	return w.Close()
}

// Allow sets how many inotify watches there may be from the next full scan on. A directory
// whose files are scanned takes two.
func (w *Watch) Allow(watches int) { w.max = watches / 2 }

// Held is how many watches there are. It may be asked at any time.
func (w *Watch) Held() int { return int(w.held.Load()) }

func (w *Watch) count() { w.held.Store(int64(len(w.dirs) + len(w.opens.dirs))) }

// Close ends the watch.
func (w *Watch) Close() error {
	w.Lose("it is closed")
	w.opens.close("it is closed")
	fd := w.fd
	w.fd, w.dirs, w.names = -1, nil, nil
	w.count()
	if fd < 0 {
		return nil
	}
	return unix.Close(fd)
}

// Lose says that not everything is known, and why, until the next full scan.
func (w *Watch) Lose(why string) {
	if w.lost == "" {
		w.lost = why
	}
}

// Lost says why not everything is known; "" when it is.
func (w *Watch) Lost() string { return w.lost }

// Off says why the newest scan that was to watch the tree left nothing watched, so that
// each scan is a full one; "" when it did not.
func (w *Watch) Off() string { return w.off }

// Begin starts the watching for a full scan: earlier events no longer matter.
func (w *Watch) Begin() error {
	w.names, w.left, w.lost, w.again = map[place]*nameState{}, map[uint32]kind{}, "", false
	if w.never != "" {
		w.off = w.never
		w.Lose(w.off)
		return nil
	}
	if w.max == 0 {
		w.off = "other computers watch as many directories as there may be watched"
		w.Lose(w.off)
		return w.Close()
	}
	if w.rest > 0 {
		w.rest--
		w.Lose("there were too many directories")
		return nil
	}
	if w.fd < 0 {
		fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
		if err != nil {
			w.rest = restFor
			w.off = "no watch could be had: " + err.Error()
			w.Lose(w.off)
			return nil //nolint:nilerr // without watches everything is scanned
		}
		w.fd, w.dirs = fd, map[int32]dir{}
	}
	w.round++
	w.read(func(int32, uint32, uint32, string) {})
	if w.lost != "" {
		return w.Close()
	}
	w.opens.begin()
	return nil
}

// Again starts a full scan while somebody else can write and all directories are watched
// already: the scan must find what is known here. Events during it are reported afterwards.
func (w *Watch) Again() {
	w.round++
	w.again = true
}

// Dir watches an open directory. It is called before the directory's names are read.
func (w *Watch) Dir(fd int, p string, how Kind) {
	if w.lost != "" {
		return
	}
	mask := uint32(always)
	if how == Scanned {
		mask |= content
	}
	wd, err := unix.InotifyAddWatch(w.fd, "/proc/self/fd/"+strconv.Itoa(fd), mask)
	if errors.Is(err, unix.ENOSPC) && w.opens.fd >= 0 {
		w.opens.close("there are too many directories")
		wd, err = unix.InotifyAddWatch(w.fd, "/proc/self/fd/"+strconv.Itoa(fd), mask)
	}
	if err != nil {
		w.Lose("a directory can't be watched: " + err.Error())
		return
	}
	d, known := w.dirs[int32(wd)]
	switch {
	case w.again && !known:
		w.Lose("a directory came that was not told of")
	case known && (w.again || d.round == w.round) && (d.path != p || d.how != how):
		w.Lose("a directory moved while it was scanned")
	case !known && len(w.dirs) >= w.max || len(w.dirs) > w.max:
		w.Lose(fmt.Sprintf("there are more than %d directories", w.max))
	}
	w.dirs[int32(wd)] = dir{p, w.round, how}
	if how == Scanned {
		w.opens.dir(fd, p, w.round)
	}
}

// End says that the scan is complete: directories that it did not meet are no longer
// watched. If not all could be watched, none is.
func (w *Watch) End() error {
	if w.fd < 0 {
		return nil
	}
	if !w.again {
		w.off = w.lost
	}
	if w.lost != "" {
		if len(w.dirs) > w.max || strings.HasSuffix(w.lost, unix.ENOSPC.Error()) {
			w.rest = restFor
		}
		return w.Close()
	}
	for wd, d := range w.dirs {
		if d.round != w.round {
			if w.again {
				w.Lose("a directory is gone that was not told of")
				return nil
			}
			delete(w.dirs, wd)
			_, _ = unix.InotifyRmWatch(w.fd, uint32(wd)) // it went with its directory
		}
	}
	w.opens.end(w.round)
	w.count()
	return nil
}

// StatFunc returns the current state of a path, and how many names its file has.
type StatFunc func(p string) (st disk.Stat, links uint64, err error)

// Changed are the paths that may have changed since the last scan; ok is false when there
// may be more. They are returned once. captured says that the scan met a path and captured
// it, linked that it found more than one name of it.
func (w *Watch) Changed(see StatFunc, captured, linked func(p string) bool) (paths []string, ok bool) {
	if w.lost != "" {
		return nil, false
	}
	w.read(w.happened)
	for _, k := range w.left {
		if k == came {
			w.Lose("a file that had come was moved away")
		}
	}
	w.left = map[uint32]kind{}
	for at, f := range w.names {
		if w.lost != "" {
			return nil, false
		}
		d := w.dirs[at.dir]
		p := wire.JoinPath(d.path, at.name)
		st, links, err := see(p)
		switch {
		case err != nil && !disk.IsGone(err):
			w.Lose("a path can't be read")
		case err != nil && f.now != none:
			w.Lose("a file is gone of which that is not known")
		case err == nil && st.IsDir():
			w.Lose("a directory took a file's place")
		case err == nil && st.IsRegular() && links > 1 && (f.named || !linked(p)):
			w.Lose("a file has more than one name")
		case d.how != Scanned:
		case !f.named && !captured(p) && path.Base(p) != ".gitignore":
			// It was there before and was not captured, because it is ignored, which has not changed.
		default:
			paths = append(paths, p)
		}
	}
	w.names = map[place]*nameState{}
	return paths, w.lost == ""
}

// read reads the reported events.
func (w *Watch) read(do func(wd int32, mask, cookie uint32, name string)) {
	if why := each(w.fd, do); why != "" {
		w.Lose(why)
	}
}

// happened handles one event.
func (w *Watch) happened(wd int32, mask, cookie uint32, name string) {
	d, known := w.dirs[wd]
	switch {
	case w.lost != "":
		return
	case mask&unix.IN_Q_OVERFLOW != 0:
		w.Lose("too much happened")
		return
	case !known:
		return // it is not watched any more
	case mask&(unix.IN_ISDIR|unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_IGNORED|unix.IN_UNMOUNT) != 0 || name == "":
		w.Lose("a directory came, went or changed")
		return
	case d.how == IgnoredTop:
		w.Lose("something came or went in a directory that is ignored")
		return
	}
	f := w.names[place{wd, name}]
	if f == nil {
		if len(w.names) >= maxNames {
			w.Lose("too much happened")
			return
		}
		f = &nameState{}
		w.names[place{wd, name}] = f
	}
	f.named = f.named || mask&naming != 0
	// A file that came and is gone may have been another name of one that the scan met,
	// which was written through it.
	switch {
	case mask&unix.IN_CREATE != 0:
		w.arrives(f, came)
	case mask&unix.IN_MOVED_TO != 0:
		if _, paired := w.left[cookie]; paired {
			delete(w.left, cookie)
			w.arrives(f, came)
		} else {
			w.arrives(f, placed)
		}
	case mask&unix.IN_MOVED_FROM != 0:
		if f.now == none {
			w.Lose("a file went that was gone")
		}
		w.left[cookie], f.now = f.now, none
	case mask&unix.IN_DELETE != 0:
		if f.now == came || f.now == none {
			w.Lose("a file came and went")
		}
		f.now = none
	}
}

func (w *Watch) arrives(f *nameState, as kind) {
	if f.now == came {
		w.Lose("a file that had come was displaced")
	}
	f.now = as
}
