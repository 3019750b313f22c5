package e2e_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/test/choirtest"
)

// writerInBox is set where this program runs inside a box of the user's, to do writeInBox.
const writerInBox = "CHOIR_TEST_WRITER"

// writeInBox does what each line of its input says, and answers each with a line.
func writeInBox() error {
	var mem []byte
	fd := -1
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		verb, rest, _ := strings.Cut(lines.Text(), " ")
		a, b, _ := strings.Cut(rest, " ")
		var err error
		switch verb {
		case "open":
			fd, err = unix.Open(a, unix.O_RDWR, 0)
		case "pwrite":
			_, err = unix.Pwrite(fd, []byte(a), 0)
		case "map": // maps the open file and closes it
			mem, err = unix.Mmap(fd, 0, 1, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			err = errors.Join(err, unix.Close(fd))
		case "store":
			mem[0] = a[0]
		case "unmap":
			err = unix.Munmap(mem)
		case "rename":
			err = os.Rename(a, b)
		case "link":
			err = os.Link(a, b)
		case "mkdir":
			err = os.Mkdir(a, 0o755)
		case "remove":
			err = os.Remove(a)
		case "tmpfile": // a file without a name in the folder a; it becomes b
			if fd, err = unix.Open(a, unix.O_TMPFILE|unix.O_RDWR, 0o644); err == nil {
				_, err = unix.Write(fd, []byte("new"))
				err = errors.Join(err, unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, b, unix.AT_SYMLINK_FOLLOW))
			}
		case "hold": // keeps a file by its present name
			fd, err = unix.Open(a, unix.O_PATH, 0)
		case "reopen": // opens that file again, wherever it is now
			fd, err = unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDWR, 0)
		}
		if _, perr := fmt.Println("did", verb, err); perr != nil {
			return perr
		}
	}
	return lines.Err()
}

// TestWhatAProgramInATerminalWritesIsInTheNextCheckpoint: a program in a box of the user's keeps
// writing in each possible way, and the next checkpoint that somebody asks for contains what it
// wrote.
func TestWhatAProgramInATerminalWritesIsInTheNextCheckpoint(t *testing.T) {
	t.Parallel()
	in := choirtest.Start(t, choirtest.Options{})
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	in.Must(t, "files", "put", self, "workspace/writer")
	in.Must(t, "exec", "--", "sh", "-c", "chmod +x workspace/writer; mkdir -p workspace/a workspace/b; for i in 1 2 3 4 5 6 7 8; do echo $i > workspace/a/$i; done")
	time.Sleep(60 * time.Millisecond) // after this time the keeper takes a file's time of change for reliable
	in.Must(t, "exec", "--", "true")
	in.Must(t, "exec", "--", "true")

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, choirtest.Binary(t), "exec", "--", "env", writerInBox+"=1", "workspace/writer")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "CHOIR_URL=" + in.URL, "CHOIR_TOKEN=" + in.Token}
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewScanner(stdout)
	do := func(line string) {
		t.Helper()
		if _, err := fmt.Fprintln(stdin, line); err != nil || !answers.Scan() {
			t.Fatalf("%s: %v, %v", line, err, answers.Err())
		}
		if verb, _, _ := strings.Cut(line, " "); answers.Text() != "did "+verb+" <nil>" {
			t.Fatalf("%s: %s", line, answers.Text())
		}
	}
	for _, step := range []struct {
		do       []string
		at, want string
	}{
		{[]string{"open workspace/a/1", "pwrite A"}, "workspace/a/1", "A\n"},
		{[]string{"pwrite B"}, "workspace/a/1", "B\n"},
		{[]string{"map", "store C"}, "workspace/a/1", "C\n"},
		{[]string{"unmap", "open workspace/a/2", "map", "CHECKPOINT", "store D"}, "workspace/a/2", "D\n"},
		{[]string{"unmap", "open workspace/a/3", "map", "CHECKPOINT", "rename workspace/a/3 workspace/b/3", "CHECKPOINT", "store E"}, "workspace/b/3", "E\n"},
		{[]string{"unmap", "tmpfile workspace/a workspace/b/tmp", "map", "CHECKPOINT", "store F"}, "workspace/b/tmp", "Few"},
		{[]string{"unmap", "hold workspace/a/4", "CHECKPOINT", "reopen", "map", "store G"}, "workspace/a/4", "G\n"},
		{[]string{"unmap", "rename workspace/a/5 workspace/b/6"}, "workspace/b/6", "5\n"},
		{[]string{"link workspace/a/7 workspace/b/link", "open workspace/b/link", "remove workspace/b/link", "map", "CHECKPOINT", "store H"}, "workspace/a/7", "H\n"},
		{[]string{"unmap", "open workspace/a/6", "map", "store J", "CHECKPOINT", "store K"}, "workspace/a/6", "K\n"}, // the same page is written again
		{[]string{"unmap", "mkdir workspace/c", "link workspace/a/8 workspace/c/8", "hold workspace/c/8", "remove workspace/c/8", "remove workspace/c", "CHECKPOINT", "reopen", "pwrite I"}, "workspace/a/8", "I\n"},
	} {
		for _, line := range step.do {
			if line == "CHECKPOINT" {
				in.Must(t, "checkpoint", "-m", "between")
				time.Sleep(60 * time.Millisecond)
				in.Must(t, "checkpoint", "-m", "what was seen is believed")
				continue
			}
			do(line)
		}
		in.Must(t, "checkpoint", "-m", step.do[len(step.do)-1])
		if got := committed(t, in, step.at); got != step.want {
			t.Errorf("after %q the checkpoint has %q of %s, want %q", step.do, got, step.at, step.want)
		}
	}
	if err := errors.Join(stdin.Close(), cmd.Wait()); err != nil {
		t.Error(err)
	}
}

// committed returns the content of a file in the newest checkpoint.
func committed(t *testing.T, in *choirtest.Instance, p string) string {
	t.Helper()
	trees, err := filepath.Glob(filepath.Join(in.Data, "computers", "*", "*", ".git"))
	if err != nil || len(trees) != 1 {
		t.Fatalf("the history is in %q: %v", trees, err)
	}
	cmd := exec.CommandContext(t.Context(), "git", "--git-dir", trees[0], "show", "HEAD:"+p)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Sprintf("%s: %s", err, out)
	}
	return string(out)
}
