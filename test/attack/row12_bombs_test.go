package attack_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"choir.dev/choiros/test/choirtest"
)

// keepers returns the processes of the instance that have "keeper" in their command line, with the
// most memory that each ever held, in KiB.
func keepers(t *testing.T, in *choirtest.Instance) map[int]int {
	t.Helper()
	parent, line := map[int]int{}, map[int]string{}
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(d))
		status, err := os.ReadFile(filepath.Join(d, "status"))
		if err != nil {
			continue // it ended meanwhile
		}
		cmdline, _ := os.ReadFile(filepath.Join(d, "cmdline"))
		parent[pid], line[pid] = statusField(status, "PPid:"), string(cmdline)
		if !strings.Contains(line[pid], "keeper") {
			delete(line, pid)
		}
	}
	found := map[int]int{}
	for pid := range line {
		for p := pid; p > 1; p = parent[p] {
			if p != in.PID {
				continue
			}
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			if err == nil {
				found[pid] = statusField(status, "VmHWM:")
			}
			break
		}
	}
	if len(found) == 0 {
		t.Fatal("no process of the instance is a keeper")
	}
	return found
}

func statusField(status []byte, name string) int {
	_, rest, _ := bytes.Cut(status, []byte("\n"+name))
	fields := strings.Fields(string(rest[:min(len(rest), 60)]))
	if len(fields) == 0 {
		return 0
	}
	n, _ := strconv.Atoi(fields[0])
	return n
}

// TestRow12Bombs adds a pack and a bundle that are small and expand enormously: to one file of 256
// MiB, and to a tree of ten to the tenth files.
func TestRow12Bombs(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "bombs")
	huge := filepath.Join(source, "huge")
	repository(t, huge, "x\n")
	const size = 256 << 20
	if out, ok := shell(t, huge, fmt.Sprintf(`id=$(head -c %d /dev/zero | git -c core.compression=1 hash-object -w --stdin) && git update-index --add --cacheinfo 100644,$id,huge`, size)); !ok {
		t.Fatal(out)
	}
	mustGit(t, huge, "commit", "-q", "-m", "huge")
	many := filepath.Join(source, "many")
	repository(t, many, "x\n")
	if out, ok := shell(t, many, `id=$(git rev-parse HEAD:file.txt); kind=blob; mode=100644
		for i in 0 1 2 3 4 5 6 7 8 9; do
			id=$(for n in 0 1 2 3 4 5 6 7 8 9; do printf '%s %s %s\t%s\n' $mode $kind $id f$n; done | git mktree) || exit 1
			kind=tree mode=040000
		done
		git update-ref refs/heads/main $(git -c user.name=T -c user.email=t@example.com commit-tree -m bomb $id)`); !ok {
		t.Fatal(out)
	}
	for _, repo := range []string{huge, many} {
		mustGit(t, repo, "-c", "pack.threads=1", "gc", "-q", "--prune=now")
		mustGit(t, repo, "bundle", "create", "-q", filepath.Join(source, filepath.Base(repo)+".bundle"), "main")
		// A loose pack is among them too, as a fetch leaves it before it is unpacked.
		if out, ok := shell(t, repo, `cp .git/objects/pack/*.pack ../`+filepath.Base(repo)+`.pack`); !ok {
			t.Fatal(out)
		}
	}
	small := diskUse(t, source)
	if small > 16<<20 {
		t.Fatalf("the bombs are %d bytes long and no bombs", small)
	}
	// These are the controls, each bounded: a checkout of the first needs more than 64 MiB for a
	// file, and a walk of the second finds more than a million names.
	for _, from := range []string{"bombs/huge", "bombs/huge.bundle"} {
		// The shell's limit counts units of 512 bytes; a process that exceeds it ends by SIGXFSZ.
		out, _ := shell(t, dir, `rm -rf out; (ulimit -f 131072; git -c safe.directory='*' clone -q -b main `+from+` out); [ $? -eq 153 ] && echo beyond`)
		if !strings.HasSuffix(out, "beyond\n") {
			t.Errorf("the control does not work: plain git unpacks %s within 64 MiB: %s", from, out)
		}
	}
	if err := os.RemoveAll(filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	if out, _ := shell(t, many, `git -c safe.directory='*' ls-tree -r --name-only HEAD | head -n 1000000 | wc -l`); strings.TrimSpace(out) != "1000000" {
		t.Errorf("the control does not work: plain git names %q files; want a million and more", out)
	}

	in := choirtest.Start(t, choirtest.Options{})
	in.Must(t, "exec", "--", "true")
	in.Must(t, "checkpoint", "-m", "before")
	before, own := keepers(t, in), filepath.Join(liveTree(t, in), ".git")
	disk := diskUse(t, own)
	in.Must(t, "add", source)
	throughTime(t, in, "bombs")
	// It grows by no more than the size of the files, which are compressed already, with room for
	// notes and trees.
	if grown := diskUse(t, own) - disk; grown > small+(1<<20) {
		t.Errorf("the history grew by %d bytes for %d bytes of bombs", grown, small)
	}
	after := keepers(t, in)
	for pid, was := range before {
		is, lives := after[pid]
		if !lives {
			t.Errorf("the keeper, process %d, did not live through it", pid)
		} else if is-was > 128<<10 {
			t.Errorf("the keeper's memory grew from %d to %d KiB at most", was, is)
		}
	}
}
