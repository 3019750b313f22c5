package guest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
)

// Cleared is the answer of POST /clear. Fresh says that, except for its tree, the box is as
// it was when it began, so that another command may be run in it.
type Cleared struct {
	Fresh bool `json:"fresh"`
}

const (
	clearLimit = 2 * time.Second
	clearPause = 200 * time.Microsecond
	freshLimit = 4000 // names and folders that are looked at
	lastRlimit = unix.RLIMIT_RTTIME

	ioprioProcess = 1 // IOPRIO_WHO_PROCESS, which is a thread
)

// clear ends everything in the box except the guest. When it has answered, nothing that was
// run writes anywhere any more.
func (g *server) clear(w http.ResponseWriter, r *http.Request) {
	var req struct{}
	if err := decode(w, r, &req); err != nil {
		writeError(w, err)
		return
	}
	for end := time.Now().Add(clearLimit); ; time.Sleep(clearPause) {
		if defence.Off(defence.GuestClear) {
			break
		}
		if err := syscall.Kill(-1, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			writeError(w, fault.Wrap("guest.Clear", err))
			return
		}
		left, err := others()
		if err != nil {
			writeError(w, fault.Wrap("guest.Clear", err))
			return
		}
		if !left {
			break
		}
		if time.Now().After(end) {
			writeError(w, fault.New("guest.Clear", fault.Timeout, "", fmt.Errorf("something in the box did not end within %s", clearLimit)))
			return
		}
	}
	writeJSON(w, http.StatusOK, Cleared{Fresh: g.fresh != "" && (g.state() == g.fresh || defence.Off(defence.GuestFresh))})
}

// others says whether anything runs in the box beside the guest. A process that can't be
// read counts.
func others() (bool, error) {
	names, err := readNames("/proc")
	if err != nil {
		return false, err
	}
	for _, name := range names {
		if name[0] < '0' || name[0] > '9' || name == "1" {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		switch {
		case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ESRCH):
			continue // it has ended
		case err != nil:
			return true, nil
		}
		if !ended(stat) {
			return true, nil
		}
	}
	return false, nil
}

// ended says whether a process and all its threads have ended, so that only its parent
// still has to wait for it.
func ended(stat []byte) bool {
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // the name in parentheses may contain anything
	const threads = 17
	return len(fields) > threads && (fields[0] == "Z" || fields[0] == "X") && (fields[threads] == "0" || fields[threads] == "1")
}

func readNames(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	names, err := d.Readdirnames(-1)
	return names, errors.Join(err, d.Close())
}

// state identifies everything that a command can leave in a terminal's box outside its
// tree: names and folders where it may write, objects of interprocess communication, the
// modes of what terminals are opened by, and settings of the guest's threads that the next
// command would inherit. "" means that the
// state can't be determined and equals no other.
func (g *server) state() string {
	if g.spec.Kind != contract.BoxTerminal {
		return ""
	}
	h := sha256.New()
	left := freshLimit
	for _, dir := range []string{"/tmp", "/dev/shm", "/dev/mqueue", environment(g.spec)["HOME"]} {
		if err := folder(h, dir, &left); err != nil {
			return ""
		}
	}
	for _, name := range []string{"/dev/pts", "/dev/pts/ptmx"} {
		var st unix.Stat_t
		if err := unix.Lstat(name, &st); err != nil {
			return ""
		}
		fmt.Fprintf(h, "%q %o\n", name, st.Mode)
	}
	for _, kind := range []string{"shm", "sem", "msg"} {
		b, err := os.ReadFile("/proc/sysvipc/" + kind)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return ""
		}
		fmt.Fprintf(h, "%s %q\n", kind, b)
	}
	for n := range lastRlimit + 1 {
		var limit unix.Rlimit
		if err := unix.Getrlimit(n, &limit); err != nil {
			return ""
		}
		fmt.Fprintln(h, n, limit.Cur, limit.Max)
	}
	if err := shares(h); err != nil {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil))
}

// shares adds what the guest's threads may have of processors and disks to the hash. A
// command has what the thread has that starts it, which may be any, and the threads are not
// always the same ones: so what they have is added once, however many have it.
func shares(h hash.Hash) error {
	threads, err := readNames("/proc/self/task")
	if err != nil {
		return err
	}
	var all []string
	for _, name := range threads {
		id, err := strconv.Atoi(name)
		if err != nil {
			return err
		}
		attr, err := unix.SchedGetAttr(id, 0)
		if errors.Is(err, unix.ESRCH) {
			continue // it has ended
		}
		var cpus unix.CPUSet
		disk, _, errno := unix.Syscall(unix.SYS_IOPRIO_GET, ioprioProcess, uintptr(id), 0)
		switch err := errors.Join(err, unix.SchedGetaffinity(id, &cpus)); {
		case errors.Is(err, unix.ESRCH), errno == unix.ESRCH:
			continue
		case err != nil:
			return err
		case errno != 0:
			return errno
		}
		all = append(all, fmt.Sprint(*attr, cpus, disk))
	}
	slices.Sort(all)
	fmt.Fprintln(h, slices.Compact(all))
	return nil
}

// folder adds a folder's names and modes to the hash, and when it last changed: its names,
// its mode or what else is said of it, such as access lists. Nobody can set that time.
func folder(h hash.Hash, dir string, left *int) error {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); errors.Is(err, unix.ENOENT) {
		fmt.Fprintf(h, "no %q\n", dir)
		return nil
	} else if err != nil {
		return err
	}
	fmt.Fprintf(h, "%q %o %d %d %d\n", dir, st.Mode, st.Uid, st.Ctim.Sec, st.Ctim.Nsec)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if *left -= 1 + len(entries); *left < 0 {
		return errors.New("too much to look at")
	}
	for _, e := range entries {
		fmt.Fprintf(h, "%q %o\n", e.Name(), e.Type())
		if e.IsDir() {
			if err := folder(h, filepath.Join(dir, e.Name()), left); err != nil {
				return err
			}
		}
	}
	return nil
}
