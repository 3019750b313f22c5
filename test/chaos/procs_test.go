package chaos_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// process is one process of the machine.
type process struct {
	pid, parent int
	args        []string
	mounts      []byte // none for a process in a box
	open        string // its open files: those of a box's first processes include the file that is locked while the box lives
}

// processes lists the machine's processes. Those that end meanwhile are left out.
func processes() []process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var out []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue
		}
		// The format is PID (NAME) STATE PPID …; the name may contain anything, and ends with the
		// last bracket.
		rest := stat[bytes.LastIndexByte(stat, ')')+1:]
		fields := bytes.Fields(rest)
		if len(fields) < 2 || fields[0][0] == 'Z' {
			continue
		}
		parent, err := strconv.Atoi(string(fields[1]))
		if err != nil {
			continue
		}
		cmdline, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline")) // empty if it has ended
		mounts, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "mountinfo"))
		out = append(out, process{pid, parent, strings.Split(strings.TrimSuffix(string(cmdline), "\x00"), "\x00"), mounts, opened(e.Name())})
	}
	return out
}

// opened returns the names of a process's open files, one on each line.
func opened(pid string) string {
	fds, err := filepath.Glob(filepath.Join("/proc", pid, "fd", "*"))
	if err != nil {
		return ""
	}
	var out []string
	for _, fd := range fds {
		if name, err := os.Readlink(fd); err == nil { // otherwise it was closed meanwhile
			out = append(out, name)
		}
	}
	return strings.Join(out, "\n")
}

// below returns a process and all its descendants.
func below(all []process, root int) map[int]bool {
	in := map[int]bool{root: true}
	for grew := true; grew; {
		grew = false
		for _, p := range all {
			if !in[p.pid] && in[p.parent] {
				in[p.pid], grew = true, true
			}
		}
	}
	return in
}

// victim is a box's first process.
type victim struct {
	pid  int
	kind string
}

// boxes returns the boxes of this world's choir.
func (w *world) boxes() []victim {
	all := processes()
	mine := below(all, w.in.PID)
	var out []victim
	for _, p := range all {
		if n := len(p.args); mine[p.pid] && n == 3 && p.args[1] == "guest" {
			out = append(out, victim{p.pid, p.args[2]})
		}
	}
	return out
}

// kind returns the living boxes of a kind.
func (w *world) kind(kind string) []victim {
	return slices.DeleteFunc(w.boxes(), func(v victim) bool { return v.kind != kind })
}

// leftovers names processes, mounts and cgroups that belong to the data directory and to no living
// choir. Empty cgroups don't count: if no process was left to remove them, the next start does.
func (w *world) leftovers(living int) []string {
	var out []string
	all := processes()
	mine := map[int]bool{}
	if living > 0 {
		mine = below(all, living)
	}
	// The computer's id is in every path from which its boxes are made.
	mark := []byte("computers/" + string(w.cid))
	for _, p := range all {
		if mine[p.pid] || p.pid == os.Getpid() {
			continue
		}
		if bytes.Contains(p.mounts, mark) || strings.Contains(p.open, string(mark)) || bytes.Contains([]byte(strings.Join(p.args, "\x00")), mark) {
			out = append(out, fmt.Sprintf("process %d (child of %d): %.200q", p.pid, p.parent, p.args))
		}
	}
	self, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return append(out, err.Error())
	}
	for line := range strings.Lines(string(self)) {
		if strings.Contains(line, string(mark)) {
			out = append(out, "mount "+strings.TrimSpace(line))
		}
	}
	sum := sha256.Sum256([]byte(filepath.Join(w.data, "computers", string(w.cid))))
	prefix := "choir." + hex.EncodeToString(sum[:6]) + "."
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil // the group ended meanwhile
		}
		if !e.IsDir() || !strings.HasPrefix(e.Name(), prefix) {
			return nil
		}
		procs, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		if err != nil {
			return fs.SkipDir
		}
		owned := living == crashed && len(procs) == 0
		for _, pid := range strings.Fields(string(procs)) {
			if n, err := strconv.Atoi(pid); err == nil && mine[n] {
				owned = true
			}
		}
		if !owned {
			out = append(out, "cgroup "+path)
		}
		return fs.SkipDir
	})
	return out
}

// These are used in place of the process id of the living choir.
const (
	stopped = 0
	crashed = -1
)

// tidy waits until nothing is left of earlier choirs.
func (w *world) tidy(living int) error {
	var left []string
	deadline := time.Now().Add(20 * time.Second)
	for wait := 2 * time.Millisecond; ; wait = min(2*wait, 200*time.Millisecond) {
		if left = w.leftovers(living); len(left) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("left over:\n  %s", strings.Join(left, "\n  "))
		}
		time.Sleep(wait)
	}
}
