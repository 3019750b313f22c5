package e2e_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
)

// plainUser owns nothing else, so that permissions apply to choir itself too.
const plainUser = 64207

// hostileTrees are scripts, each of which runs in a folder of its own.
var hostileTrees = []struct{ name, script string }{
	{"deep", `perl -e 'for (1..22000) { mkdir "d" or die; chdir "d" or die }'`},
	{"closed", `mkdir shut listed fixed && echo x > shut/f && echo x > listed/f && echo x > fixed/f && echo x > secret && ` +
		`chmod 0000 secret shut && chmod 0444 listed && chmod 0555 fixed`},
	{"names", `perl -e '$n = "n" x 255; $b = "\xff" x 255; for ($n, $b, "\n" x 255, " " x 255) { mkdir $_ or die; open F, ">", "$_/$n" or die; print F "x"; mkdir "$_/$b"; } symlink "x" x 255, "l"'`},
	{"ignores", `perl -e '$p = join "", map { "**/a*b*c*/**/" . ("*x" x 40) . "$_/**\n!**/keep$_*\n" } 1..2000; for $d (".", map { mkdir "s$_"; "s$_" } 1..20) {` +
		`for $f (".gitignore", ".gitattributes") { open F, ">", "$d/$f" or die; print F $p; close F } for (1..20) { open F, ">", "$d/" . ("ax" x 60) . $_ or die; print F "x" } }'`},
	{"many", `perl -e 'for $d (1..30) { mkdir "d$d" or die; for (1..100) { open F, ">", "d$d/$_" or die } }'`},
}

// TestHostileTrees has commands and a task write trees that are made to cause trouble, kills choir
// while they are written and after that, and then does what people do: the computer wakes, and
// commands, a prompt, checkpoints and restores work.
func TestHostileTrees(t *testing.T) {
	t.Parallel()
	dir := choirtest.Scratch(t)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // a failed test leaves trees that are too deep for the usual cleanup
		_ = exec.Command("rm", "-rf", filepath.Join(dir, "data")).Run()
	})
	opts := choirtest.Options{Data: filepath.Join(dir, "data"), Env: []string{"CHOIR_STORAGE_FILES=1500"}}
	if os.Geteuid() == 0 {
		opts.User = plainUser
	}
	in := choirtest.Start(t, opts)
	lives, err := filepath.Glob(filepath.Join(in.Data, "computers", "*", "workspace"))
	if err != nil || len(lives) != 1 {
		t.Fatal(lives, err)
	}
	in.Must(t, "exec", "--", "sh", "-c", "echo mine > workspace/mine.txt")

	killed := func(want string) {
		t.Helper()
		in.Kill()
		in = choirtest.Start(t, opts)
		in.Must(t, "exec", "--", "true")
		if got := in.Must(t, "files", "cat", "workspace/mine.txt"); got != want {
			t.Errorf("mine.txt holds %q", got)
		}
	}
	// The first kill is in the middle: once each has written its tree, all of them write theirs
	// again and again.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{})
	for _, c := range hostileTrees {
		again := "for i in 1 2 3 4 5 6 7 8 9; do mkdir -p workspace/middle/" + c.name + "$i && (cd workspace/middle/" + c.name + "$i && " + c.script + "); " +
			"touch workspace/middle/." + c.name + "; until [ -e workspace/middle/.all ]; do sleep 0.05; done; done; sleep 60"
		go func() {
			defer func() { ended <- struct{}{} }()
			_, _ = in.Run(ctx, "exec", "--", "sh", "-c", again)
		}()
	}
	middle := filepath.Join(lives[0], "workspace", "middle")
	for _, next := range []string{".%s", "%s2"} {
		for _, c := range hostileTrees {
			choirtest.Eventually(t, time.Minute, c.name+" is written", func() bool {
				_, err := os.Lstat(filepath.Join(middle, fmt.Sprintf(next, c.name)))
				return err == nil
			})
		}
		if err := os.WriteFile(filepath.Join(middle, ".all"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	in.Kill()
	cancel()
	for range hostileTrees {
		<-ended
	}
	in = choirtest.Start(t, opts)
	in.Must(t, "exec", "--", "sh", "-c", "chmod -R u+rwx workspace/middle; rm -rf workspace/middle")

	// The second kill is after that.
	for _, c := range hostileTrees {
		in.Must(t, "exec", "--", "sh", "-c", "mkdir -p workspace/after/"+c.name+" && cd workspace/after/"+c.name+" && "+c.script)
	}
	killed("mine\n")

	r, err := in.Run(t.Context(), "exec", "--", "sh", "-c", "echo more > workspace/mine.txt; touch workspace/after/many/d1/more")
	if err != nil || r.Code != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	var files []view.File
	in.JSON(t, &files, "files", "ls", "workspace/after")
	unkept := 0
	for _, f := range files {
		unkept += f.Beneath
	}
	if len(files) != len(hostileTrees) || unkept < 1000 {
		t.Errorf("the folders say %d files are in no checkpoint: %+v", unkept, files)
	}
	in.Must(t, "checkpoint", "-m", "hostile")
	var list []view.Checkpoint
	in.JSON(t, &list, "checkpoints")

	in.Must(t, "exec", "--", "rm", "-rf", "workspace/after/many") // this makes room

	// A task writes them too.
	var script strings.Builder
	for _, c := range hostileTrees {
		script.WriteString("mkdir -p workspace/task/" + c.name + " && (cd workspace/task/" + c.name + " && " + c.script + ")\n")
	}
	script.WriteString("echo done > workspace/task.txt\n")
	if err := os.WriteFile(filepath.Join(dir, "hostile.sh"), []byte(script.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	in.Must(t, "files", "put", filepath.Join(dir, "hostile.sh"), "workspace/hostile.sh")
	var res struct {
		Status  contract.RunStatus
		Summary string
	}
	in.JSON(t, &res, "prompt", "--wait", "run `sh workspace/hostile.sh`")
	if res.Status != contract.RunDone || !strings.Contains(res.Summary, "more than one checkpoint takes") {
		t.Errorf("the prompt ended as %s: %s", res.Status, res.Summary)
	}
	if got := in.Must(t, "files", "cat", "workspace/task.txt"); got != "done\n" {
		t.Errorf("task.txt holds %q", got)
	}
	// What can't be published for lack of permission is reported with the reason, the rest is
	// published, and checkpoints are still made.
	in.Must(t, "exec", "--", "sh", "-c", "rm -rf workspace/task/many && mkdir workspace/shut && echo one > workspace/shut/f && chmod 0555 workspace/shut")
	in.JSON(t, &res, "prompt", "--wait", "run `sh -c 'echo two > workspace/shut/f; echo two > workspace/open'`")
	if !strings.Contains(res.Summary, "workspace/shut/f (its permissions, or those of its folder,") {
		t.Errorf("the prompt ended as %s: %s", res.Status, res.Summary)
	}
	if got := in.Must(t, "files", "cat", "workspace/shut/f") + in.Must(t, "files", "cat", "workspace/open"); got != "one\ntwo\n" {
		t.Errorf("f and open hold %q", got)
	}
	in.Must(t, "exec", "--", "sh", "-c", "rm -rf workspace/open; chmod 0755 workspace/shut; echo three > workspace/shut/f")
	killed("more\n")
	in.Must(t, "exec", "--", "sh", "-c", "echo last > workspace/mine.txt")
	in.Must(t, "restore", list[len(list)-1].ID, "--path", "workspace/mine.txt")
	in.Must(t, "undo")
	if got := in.Must(t, "files", "cat", "workspace/mine.txt"); got != "last\n" {
		t.Errorf("after the undo mine.txt holds %q", got)
	}
	// All of it can be removed, and then nothing is left out any more.
	in.Must(t, "exec", "--", "sh", "-c", "chmod -R u+rwx workspace/after workspace/task; rm -rf workspace/after workspace/task")
	if r, err := in.Run(t.Context(), "checkpoint", "-m", "clean"); err != nil || r.Code != 0 || strings.Contains(r.Stdout+r.Stderr, "more than one checkpoint") {
		t.Errorf("%+v, %v", r, err)
	}
}
