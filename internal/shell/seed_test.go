package shell

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"choir.dev/choiros/internal/sandbox/local"
	"choir.dev/choiros/test/choirtest"
)

// TestSeedChild is the process that TestASeedIsOnDiskBeforeItHasItsName traces.
func TestSeedChild(t *testing.T) {
	dir := os.Getenv("SHELL_SEED")
	if dir == "" {
		t.Skip("it has something to do as a child only")
	}
	files := fstest.MapFS{}
	for i := range 20 {
		files[fmt.Sprintf("src/%d/file.ts", i%5)+fmt.Sprint(i)] = &fstest.MapFile{Data: []byte("content"), Mode: 0o444}
	}
	v, err := local.OpenVolumes(local.VolumesOptions{Dir: dir, OnError: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	if err := Seed(t.Context(), v, files); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stdout.WriteString("SEEDED\n"); err != nil {
		t.Fatal(err)
	}
}

var systemCall = regexp.MustCompile(`^\d+ +(\w+)\((.*)$`)

// TestASeedIsOnDiskBeforeItHasItsName traces system calls: each file and folder of a new computer
// is synced before the whole gets its name, and the name is synced before anything reports it,
// which is before computer.created.
func TestASeedIsOnDiskBeforeItHasItsName(t *testing.T) {
	choirtest.NotInBox(t, "tracing of system calls")
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Fatal("this test needs strace: install it, for example with: apt-get install strace")
	}
	dir := t.TempDir()
	trace := filepath.Join(t.TempDir(), "trace")
	cmd := exec.CommandContext(t.Context(), strace, "-f", "-y", "-s", "4096", "-o", trace, "-e", "trace=write,openat2,mkdirat,fsync,syncfs,rename,renameat,renameat2",
		os.Args[0], "-test.run=^TestSeedChild$")
	cmd.Env = append(os.Environ(), "SHELL_SEED="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("strace: %v\n%s", err, out)
	}
	f, err := os.Open(trace)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tmp := filepath.Join(dir, "boxes/.out-seed")
	made, synced, named := map[string]bool{tmp: true}, map[string]bool{}, false
	told := 0
	at := regexp.MustCompile(`^\d+<([^>]*)>, "([^"]*)"`)
	fd := regexp.MustCompile(`^\d+<([^>]*)>`)
	for s := bufio.NewScanner(f); s.Scan(); {
		m := systemCall.FindStringSubmatch(s.Text())
		if m == nil {
			continue
		}
		switch m[1] {
		case "openat2", "mkdirat":
			if p := at.FindStringSubmatch(m[2]); p != nil && (m[1] == "mkdirat" || strings.Contains(m[2], "O_CREAT")) {
				if name := filepath.Join(p[1], p[2]); strings.HasPrefix(name, tmp+"/") {
					made[name] = true
				}
			}
		case "write":
			if p := fd.FindStringSubmatch(m[2]); p != nil && strings.HasPrefix(p[1], tmp) {
				made[filepath.Clean(p[1])] = true
				delete(synced, p[1])
			} else if strings.Contains(m[2], `"SEEDED`) {
				if told++; !named || !synced[dir] {
					t.Errorf("it was told before it had its name for good: named %v, synced %v", named, synced[dir])
				}
			}
		case "fsync":
			if p := fd.FindStringSubmatch(m[2]); p != nil {
				synced[p[1]] = true
			}
		case "syncfs":
			for p := range made {
				synced[p] = true
			}
		default: // another rename
			if p := at.FindStringSubmatch(m[2]); p == nil || filepath.Join(p[1], p[2]) != tmp || !strings.HasSuffix(m[2], " = 0") {
				continue
			}
			named = true
			delete(synced, dir)
			for p := range made {
				if !synced[p] {
					t.Errorf("%s was not synced when the whole got its name", strings.TrimPrefix(p, dir))
				}
			}
		}
	}
	if len(made) < 25 || told != 1 {
		t.Errorf("the trace shows %d files and folders made, and %d tellings", len(made), told)
	}
}
