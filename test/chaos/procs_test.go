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
	mounts      []byte // none for what runs in a box
	open        string // what it has open: a box's first processes, the file that is locked while it lives
}

// processes lists what runs. Processes that end meanwhile are left out.
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
		// PID (NAME) STATE PPID …; the name may hold anything but ends last.
		rest := stat[bytes.LastIndexByte(stat, ')')+1:]
		fields := bytes.Fields(rest)
		if len(fields) < 2 || fields[0][0] == 'Z' {
			continue
		}
		parent, err := strconv.Atoi(string(fields[1]))
		if err != nil {
			continue
		}
		cmdline, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline")) // gone: empty
		mounts, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "mountinfo"))
		out = append(out, process{pid, parent, strings.Split(strings.TrimSuffix(string(cmdline), "\x00"), "\x00"), mounts, opened(e.Name())})
	}
	return out
}

// opened names, a line each, what a process has open.
func opened(pid string) string {
	fds, err := filepath.Glob(filepath.Join("/proc", pid, "fd", "*"))
	if err != nil {
		return ""
	}
	var out []string
	for _, fd := range fds {
		if name, err := os.Readlink(fd); err == nil { // else it is closed meanwhile
			out = append(out, name)
		}
	}
	return strings.Join(out, "\n")
}

// below is the set of a process and all that descends from it.
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

// boxes lists the boxes of the choir that this world started.
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

// kind lists the living boxes of a kind.
func (w *world) kind(kind string) []victim {
	return slices.DeleteFunc(w.boxes(), func(v victim) bool { return v.kind != kind })
}

// leftovers names processes, mounts and cgroups that belong to the data
// directory but to no living choir. Empty cgroups wait for the next start when
// nobody was left to remove them: then they don't count.
func (w *world) leftovers(living int) []string {
	var out []string
	all := processes()
	mine := map[int]bool{}
	if living > 0 {
		mine = below(all, living)
	}
	// The computer's id is in every path that a box of it is made of.
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
			return nil // a group that ended while it was looked at
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

// In place of the living choir's process.
const (
	stopped = 0
	crashed = -1
)

// tidy waits until nothing is left over of choirs that died.
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
