package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"choir.dev/choiros/internal/sandbox"
)

// TestCgroup2 uses a plain directory in place of a version 2 tree as systemd delegates it, and
// compares what is written where with what the kernel expects.
func TestCgroup2(t *testing.T) {
	dir := t.TempDir()
	own := filepath.Join(dir, "user.slice", "choir.service")
	files := func(at string, contents map[string]string) {
		t.Helper()
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range contents {
			if err := os.WriteFile(filepath.Join(at, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	files(own, map[string]string{"cgroup.controllers": "cpu memory pids\n", "cgroup.subtree_control": "memory pids cpu\n", "cgroup.procs": ""})
	files(filepath.Join(own, "choir-control"), map[string]string{"cgroup.procs": ""})
	mountinfo, self := filepath.Join(dir, "mountinfo"), filepath.Join(dir, "self")
	files(dir, map[string]string{
		"mountinfo": fmt.Sprintf("30 23 0:26 / %s rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n", dir),
		"self":      "0::/user.slice/choir.service\n",
	})
	c := Detect(mountinfo, self)
	if !c.V2 || c.Parent["memory"] != own || c.Parent["pids"] != own {
		t.Fatalf("found %+v", c)
	}
	read := func(path string) string { data, _ := os.ReadFile(path); return string(data) }
	if present(filepath.Join(own, "choir-control", "cgroup.procs")) && read(filepath.Join(own, "choir-control", "cgroup.procs")) != "" {
		t.Error("this process moved although nothing was missing")
	}
	// If controllers have to be enabled first, the process moves into a group of its own before. (A
	// plain file contains only what was written last, where the kernel's would add to it.)
	fresh := filepath.Join(dir, "fresh")
	files(fresh, map[string]string{"cgroup.controllers": "pids\n", "cgroup.subtree_control": ""})
	files(filepath.Join(fresh, "choir-control"), map[string]string{"cgroup.procs": ""})
	(&Groups{V2: true, Parent: map[string]string{}}).delegate(fresh)
	if got := read(filepath.Join(fresh, "choir-control", "cgroup.procs")); got != "0" {
		t.Errorf("this process did not move: %q", got)
	}
	if got := read(filepath.Join(fresh, "cgroup.subtree_control")); got != "+pids" {
		t.Errorf("the missing controller was not asked for: %q", got)
	}
	files(filepath.Join(own, "box"), map[string]string{"memory.max": "", "pids.max": "", "cpu.max": "", "memory.swap.max": "", "cgroup.kill": "",
		"cgroup.procs": "12\n34\n", "memory.events": "low 0\noom 3\noom_kill 2\n", "memory.current": "4096\n", "pids.current": "5\n", "cpu.stat": "usage_usec 1500000\n"})
	g, err := c.Make("box", sandbox.Limits{MemoryBytes: 1 << 20, Pids: 7, CPUPercent: 150}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{"memory.max": "1048576", "memory.swap.max": "0", "pids.max": "7", "cpu.max": "150000 100000"} {
		if got := read(filepath.Join(own, "box", file)); got != want {
			t.Errorf("%s is %q, want %q", file, got, want)
		}
	}
	var u sandbox.Usage
	g.Usage(&u)
	if u.OOMKills != 2 || u.MemoryBytes != 4096 || u.Pids != 5 || u.CPU.Seconds() != 1.5 || fmt.Sprint(g.Members()) != "[12 34]" {
		t.Errorf("usage %+v, members %v", u, g.Members())
	}
	if err := g.Kill(); err != nil || read(filepath.Join(own, "box", "cgroup.kill")) != "1" {
		t.Errorf("kill: %v", err)
	}
	// If nothing is writable, there is a note for each controller that is missed, and boxes have no groups.
	missed := len(controllers)
	if os.Geteuid() != 0 {
		missed-- // another user's processes are counted without one
	}
	c = Detect(filepath.Join(dir, "absent"), self)
	if len(c.Notes) != missed || c.Notes[0].Hint == "" {
		t.Errorf("notes %+v", c.Notes)
	}
	if g, err := c.Make("box", sandbox.Limits{}, 0); err != nil || len(g.Dirs) != 0 {
		t.Errorf("%+v %v", g, err)
	}
}
