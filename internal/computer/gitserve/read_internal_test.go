package gitserve

import (
	"bytes"
	"context"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/test/choirtest"
)

// TestAPipeThatComesWhileGitReads: a pipe that takes an object's place after the look for such, which
// git would wait for without end, ends the answer in words. Without it git answers as always.
func TestAPipeThatComesWhileGitReads(t *testing.T) {
	t.Parallel()
	choirtest.NotInBox(t, "namespace for bubblewrap")
	git, err := osexec.LookPath("git")
	if err != nil {
		t.Fatal("this test needs git: install it with the system's package manager")
	}
	for _, pipe := range []bool{false, true} {
		dir := t.TempDir()
		run := func(line string) string {
			t.Helper()
			cmd := osexec.CommandContext(t.Context(), "sh", "-euc", line)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			return strings.TrimSpace(string(out))
		}
		id := run("mkdir bin; git init -q -b main repository; cd repository; git -c user.name=a -c user.email=a@b commit -q --allow-empty -m a; git rev-parse HEAD")
		comes := ""
		if pipe {
			object := "/tmp/repository/.git/objects/" + id[:2] + "/" + id[2:]
			comes = "case \"$*\" in upload-pack*) rm -f " + object + "; mkfifo " + object + ";; esac\n"
		}
		if err := os.WriteFile(filepath.Join(dir, "bin", "git"), []byte("#!/bin/sh\n"+comes+"exec "+git+" \"$@\"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		asked := line("command=fetch") + "0001" + line("want "+id+"\n") + line("done\n") + "0000"
		wants, err := wanted([]byte(asked))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := osexec.CommandContext(ctx, "bwrap", "--unshare-pid", "--die-with-parent", "--dev-bind", "/", "/", "--proc", "/proc", "--tmpfs", "/tmp", "--bind", dir, "/tmp",
			"sh", "-c", script("/tmp/repository", readRepository), "sh", "upload-pack", "", fmt.Sprint(len(wants)))
		cmd.Env = append(os.Environ(), "PATH=/tmp/bin:"+os.Getenv("PATH"), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_PROTOCOL=version=2")
		cmd.Stdin = bytes.NewReader(append(wants, asked...))
		var said, trouble bytes.Buffer
		cmd.Stdout, cmd.Stderr = &said, &trouble
		err = cmd.Run()
		if code := cmd.ProcessState.ExitCode(); pipe && code != 71 || !pipe && code != 0 || ctx.Err() != nil {
			t.Errorf("a pipe: %v; it ended with %v: %s", pipe, err, &trouble)
		}
		if strings.Contains(said.String(), "PACK") == pipe {
			t.Errorf("a pipe: %v; git said %q", pipe, &said)
		}
	}
}
