package watch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strconv"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Whoever has a file open for writing can write to it unseen: by memory that it is
// mapped to, or by calls that make no event. That is told when the last one closes it.
// So while somebody lives who can write, each file that was opened since the last time
// that nobody could, or that got a name since, may be other than it was.

// openMask is what makes a file such a one: it was opened by its name, or got it. A
// descriptor keeps the name by which it was opened, and follows it when it is moved.
const openMask = unix.IN_OPEN | unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_ONLYDIR

// opens notes the files of the watched directories that were opened. It has a queue of its own,
// so that many files that are read cost no more than what is told of those.
type opens struct {
	fd    int
	dirs  map[int32]dir
	names map[place]bool
	lost  string // why not all are known; "" when they are
	met   int    // directories that looks met
}

// begin says that a look at everything begins.
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

// dir watches an open directory whose files are looked at.
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
		o.read() // the look opens each directory, which is told too
	}
}

// drainEach is how many directories are opened by a look until it reads what that makes.
const drainEach = 1024

// end says that everything was looked at.
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

// read takes in what was opened since it was read last.
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

// Note takes in which files were opened until now.
func (w *Watch) Note() {
	if w.opens.fd >= 0 {
		w.opens.read()
	}
}

// Forgive says that whoever opened a file that was noted so far can't write to it any more.
func (w *Watch) Forgive() {
	if w.opens.fd >= 0 {
		w.opens.names, w.opens.lost = map[place]bool{}, ""
	}
}

// Opened are the files that somebody may have open who can write, as of the last Note;
// ok is false when there may be more of them. They are told each time.
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

// each reads what an inotify descriptor reports until there is no more, or says why it can't.
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
