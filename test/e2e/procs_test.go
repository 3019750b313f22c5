package e2e_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/test/choirtest"
)

// process is what the host can see of a process.
type process struct {
	pid, parent int
	cmdline     string
}

// descendants returns every living process that pid started, directly or not.
func descendants(t *testing.T, pid int) []process {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	all := map[int][]process{}
	for _, e := range entries {
		id, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue // it has ended
		}
		after := stat[bytes.LastIndexByte(stat, ')')+1:]
		fields := strings.Fields(string(after))
		if len(fields) < 2 || fields[0] == "Z" {
			continue
		}
		parent, err := strconv.Atoi(fields[1])
		if err != nil {
			t.Fatalf("/proc/%d/stat: %s", id, stat)
		}
		cmdline, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline")) // it may have ended
		all[parent] = append(all[parent], process{id, parent, strings.ReplaceAll(strings.TrimRight(string(cmdline), "\x00"), "\x00", " ")})
	}
	var out []process
	for todo := []int{pid}; len(todo) > 0; todo = todo[1:] {
		for _, p := range all[todo[0]] {
			out = append(out, p)
			todo = append(todo, p.pid)
		}
	}
	return out
}

// running returns the descendants whose command line contains a text.
func running(t *testing.T, pid int, text string) []process {
	t.Helper()
	return slices.DeleteFunc(descendants(t, pid), func(p process) bool { return !strings.Contains(p.cmdline, text) })
}

// process searches a process's environment, command line and memory. Of a process that has ended
// meanwhile, nothing can be read.
func (n needles) process(t *testing.T, pid int) (found []string, memory int64) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/", pid)
	gone := func(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) }
	for _, name := range []string{"environ", "cmdline"} {
		b, err := os.ReadFile(dir + name)
		if gone(err) {
			return nil, 0
		}
		if err != nil {
			t.Fatalf("%v: this test has to run as one who may see its own processes", err)
		}
		found = append(found, where(dir+name, n.in(b))...)
	}
	maps, err := os.ReadFile(dir + "maps")
	if gone(err) || len(maps) == 0 {
		return found, 0
	}
	if err != nil {
		t.Fatal(err)
	}
	mem, err := os.Open(dir + "mem")
	if gone(err) {
		return found, 0
	}
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	for line := range strings.Lines(string(maps)) {
		var from, to int64
		var mode string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &mode); err != nil || from < 0 {
			continue // vsyscall is beyond the largest offset
		}
		// A mapping of a program's file that can't be written to can't contain a secret.
		if mode[0] != 'r' || mode[1] != 'w' {
			continue
		}
		if to-from > 1<<30 {
			t.Errorf("process %d maps more than can be looked through: %s", pid, line)
			continue
		}
		hits, err := n.stream(tolerant{io.NewSectionReader(mem, from, to-from)})
		if err != nil {
			t.Fatal(err)
		}
		memory += to - from
		found = append(found, where(fmt.Sprintf("%smem %x", dir, from), hits)...)
	}
	return found, memory
}

// guest returns the kind of the box of which a process is the guest, and "" for any other process.
// The program that starts a box has more arguments.
func (p process) guest() contract.BoxKind {
	if args := strings.Fields(p.cmdline); len(args) == 3 && args[1] == "guest" {
		return contract.BoxKind(args[2])
	}
	return ""
}

// inBox searches what the guests of a kind of box have started.
func inBox(t *testing.T, in *choirtest.Instance, kind contract.BoxKind, n needles) (found []string) {
	t.Helper()
	for _, g := range descendants(t, in.PID) {
		if g.guest() != kind {
			continue
		}
		for _, p := range descendants(t, g.pid) {
			hits, _ := n.process(t, p.pid)
			found = append(found, hits...)
		}
	}
	return found
}
