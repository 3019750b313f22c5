package watch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strconv"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Whoever has a file open for writing can write to it unnoticed: by memory that it is
// mapped to, or by calls that make no event. Only its closing is reported. So while
// somebody who can write is running, each file that was opened, or got its name, since
// nobody could write may have changed.

// openMask is what makes a file such a one: it was opened by its name, or got it. A
// descriptor keeps the name by which it was opened, and follows it when it is moved.
const openMask = unix.IN_OPEN | unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_ONLYDIR

// opens notes the files of the watched directories that were opened. It has an inotify
// queue of its own, so that reading many files costs only their events.
type opens struct {
	fd    int
	dirs  map[int32]dir
	names map[place]bool
	lost  string // why not all are known; "" when they are
	met   int    // directories that scans met
}

// begin starts the watching for a full scan.
func (o *opens) begin() {
	if o.fd >= 0 {
		o.read()
		return
	}
	o.lost = ""
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		o.lose("no watch could be had")
		return
	}
	o.fd, o.dirs, o.names = fd, map[int32]dir{}, map[place]bool{}
}

// dir watches an open directory whose files are scanned.
func (o *opens) dir(fd int, p string, round int) {
	if o.fd < 0 {
		return
	}
	wd, err := unix.InotifyAddWatch(o.fd, "/proc/self/fd/"+strconv.Itoa(fd), openMask)
	if err != nil {
		o.close("a directory can't be watched: " + err.Error())
		return
	}
	o.dirs[int32(wd)] = dir{path: p, round: round}
	if o.met++; o.met%drainEach == 0 {
		o.read() // the scan opens each directory, which is reported too
	}
}

// drainEach is after how many opened directories a scan reads the events that this makes.
const drainEach = 1024

// end says that the scan is complete.
func (o *opens) end(round int) {
	for wd, d := range o.dirs {
		if d.round != round {
			delete(o.dirs, wd)
			_, _ = unix.InotifyRmWatch(o.fd, uint32(wd)) // it went with its directory
		}
	}
}

func (o *opens) lose(why string) {
	if o.lost == "" {
		o.lost = why
	}
}

func (o *opens) close(why string) {
	o.lose(why)
	if o.fd >= 0 {
		_ = unix.Close(o.fd)
	}
	o.fd, o.dirs, o.names = -1, nil, nil
}

// read reads what was opened since the last read.
func (o *opens) read() {
	why := each(o.fd, func(wd int32, mask, _ uint32, name string) {
		switch {
		case mask&unix.IN_Q_OVERFLOW != 0:
			o.lose("too many files were opened")
		case mask&unix.IN_ISDIR != 0 || name == "" || o.names[place{wd, name}]:
		case len(o.names) >= maxNames:
			o.lose("too many files were opened")
		default:
			o.names[place{wd, name}] = true
		}
	})
	if why != "" {
		o.lose(why)
	}
}

// Note records which files have been opened until now.
func (w *Watch) Note() {
	if w.opens.fd >= 0 {
		w.opens.read()
	}
}

// Forgive says that whoever opened the files noted so far can't write to them any more.
func (w *Watch) Forgive() {
	if w.opens.fd >= 0 {
		w.opens.names, w.opens.lost = map[place]bool{}, ""
	}
}

// Opened are the files that somebody who can write may have open, as of the last Note; ok
// is false when there may be more. They are returned each time.
func (w *Watch) Opened() (paths []string, ok bool) {
	if w.opens.fd < 0 || w.opens.lost != "" {
		return nil, false
	}
	for at := range w.opens.names {
		d, known := w.opens.dirs[at.dir]
		if !known {
			return nil, false
		}
		paths = append(paths, wire.JoinPath(d.path, at.name))
	}
	return paths, true
}

// each reads an inotify descriptor's events until there are no more, or says why it can't.
func each(fd int, do func(wd int32, mask, cookie uint32, name string)) (why string) {
	const head = unix.SizeofInotifyEvent
	buf := make([]byte, 64<<10)
	for n := 0; n < maxEvents; {
		got, err := unix.Read(fd, buf)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return ""
		case err != nil || got <= 0:
			return "what happened can't be read"
		}
		for rec := buf[:got]; len(rec) >= head; n++ {
			size := head + int(binary.NativeEndian.Uint32(rec[12:]))
			if size > len(rec) {
				return "what happened can't be read"
			}
			name, _, _ := bytes.Cut(rec[head:size], []byte{0})
			do(int32(binary.NativeEndian.Uint32(rec)), binary.NativeEndian.Uint32(rec[4:]), binary.NativeEndian.Uint32(rec[8:]), string(name))
			rec = rec[size:]
		}
	}
	return "too much happened"
}
