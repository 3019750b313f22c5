package boxtools_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/internal/tool/boxtools"
)

func TestOutputComesInItsOrder(t *testing.T) {
	b := newBox(t)
	r := b.call("bash", m{"command": "for i in 1 2 3; do echo out $i; echo err $i >&2; done; exit 3"})
	if want := "exit code 3\nout 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\n"; r.Output != want || r.Command.ExitCode != 3 || r.Command.Stdout != strings.TrimPrefix(want, "exit code 3\n") {
		t.Errorf("%q %+v", r.Output, r.Command)
	}
	if got := r.Command.Argv; len(got) != 3 || got[0] != "bash" || !strings.HasPrefix(got[2], "for i in") {
		t.Errorf("%q", got)
	}
}

var keptAt = regexp.MustCompile(`the output is in (\S+\.txt)`)

// TestLongOutputIsKept: of a long output head and tail are shown, and all of it can be read.
func TestLongOutputIsKept(t *testing.T) {
	b := newBox(t)
	r := b.call("bash", m{"command": "seq 100000; echo last words >&2"})
	at := keptAt.FindStringSubmatch(r.Output)
	if at == nil || !r.Truncated || len(r.Output) > 16<<10 || !strings.HasPrefix(r.Output, "exit code 0\n1\n2\n") || !strings.HasSuffix(r.Output, "\n100000\nlast words\n") || !strings.Contains(r.Output, "bytes left out; the output is in") {
		t.Fatalf("%+v", r)
	}
	has(t, "its middle", b.call("read", m{"path": at[1], "offset": 54321, "limit": 1}), true, " 54321\t54321\n", "of 100001")
	has(t, "what is in it", b.call("grep", m{"path": at[1], "pattern": "^77777$"}), true, ":77777:77777\n")
	for _, bad := range []string{at[1] + "/../../passwd", filepath.Dir(at[1]), filepath.Dir(at[1]) + "/../x", filepath.Dir(at[1]) + "x"} {
		if got := b.call("read", m{"path": bad}); got.OK {
			t.Errorf("%s: %+v", bad, got)
		}
	}
	has(t, "written to", b.call("write", m{"path": at[1], "content": "x", "overwrite": true}), false, "outside the workspace")
	// A link that a command puts there leads nowhere else.
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("canary\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	b.call("bash", m{"command": fmt.Sprintf("ln -s %s %s/link", secret, filepath.Dir(at[1]))})
	for _, tool := range []m{{"path": filepath.Dir(at[1]) + "/link"}, {"path": filepath.Dir(at[1]) + "/link", "pattern": "c"}} {
		name := map[bool]string{true: "grep", false: "read"}[tool["pattern"] != nil]
		if got := b.call(name, tool); strings.Contains(got.Output, "canary") {
			t.Errorf("%s: %+v", name, got)
		}
	}
	short := b.call("bash", m{"command": "seq 1000"})
	has(t, "what is shown whole", short, true, "\n1000\n(the output is in ")
	if short.Truncated {
		t.Error("it is called cut")
	}
	// What is longer than all that is kept has its beginning and its end.
	r = b.call("bash", m{"command": "yes | head -c 12000000; echo; echo THE END"})
	at = keptAt.FindStringSubmatch(r.Output)
	if at == nil {
		t.Fatalf("%.300s", r.Output)
	}
	if info, err := os.Stat(at[1]); err != nil || info.Size() > 8<<20+100 || info.Size() < 7<<20 {
		t.Errorf("%v %v", info, err)
	}
	data, _ := os.ReadFile(at[1])
	if !strings.HasPrefix(string(data), "y\ny\n") || !strings.HasSuffix(string(data), "y\n\nTHE END\n") || !strings.Contains(string(data), "bytes left out") {
		t.Error("not the beginning and the end")
	}
	// The oldest go when there are too many.
	for range 70 {
		r = b.call("bash", m{"command": "seq 1000"})
	}
	files, err := filepath.Glob(filepath.Dir(keptAt.FindStringSubmatch(r.Output)[1]) + "/*.txt")
	if err != nil || len(files) > 64 {
		t.Errorf("%d files are kept %v", len(files), err)
	}
}

func TestTheShellKeepsItsFolderAndVariables(t *testing.T) {
	b := newBox(t)
	b.put("p/q/x", "", 0o644)
	bash := func(command string, more ...m) result {
		args := m{"command": command}
		for _, x := range more {
			for k, v := range x {
				args[k] = v
			}
		}
		return b.call("bash", args)
	}
	has(t, "cd", bash("cd p; export A='one  two' B=$'x\ny'; f() { echo called $1; }; export -f f; C=local"), true, "exit code 0, in p\n")
	has(t, "there", bash(`ls; echo "$A|$B|$C|"; f now; (cd q); echo $#`), true, "exit code 0, in p\nq\none  two|x\ny||\ncalled now\n0\n")
	has(t, "a command that fails", bash("set -eu; export D=4; cd q; false; echo no"), true, "exit code 1, in p/q\n")
	has(t, "what it left", bash("echo $D; unset D A; cd ..; exit 5"), true, "exit code 5, in p\n4\n")
	has(t, "what is unset", bash(`echo "[$A$D]"`), true, "[]\n")
	has(t, "a folder of the call", bash("pwd", m{"cwd": "p/q"}), true, "in p/q\n", b.root+"/p/q\n")
	has(t, "it stays there", bash("pwd"), true, b.root+"/p/q\n")
	// What a command does to its own shell is not the next one's trouble.
	for _, bad := range []string{"exec sleep 0", "trap 'echo mine' EXIT", "kill -9 $$", "exit() { :; }; printf() { :; }", "echo 'x ((", "PWD=/nowhere; unset HOME", "enable -n printf", "rm -rf " + os.TempDir() + "/choir-output-*/*.after"} {
		bash(bad)
	}
	has(t, "afterwards", bash("pwd; echo $B"), true, "in p/q\n", "/p/q\nx y\n")
	has(t, "a path that leads nowhere", bash("export PATH=/nowhere LD_LIBRARY_PATH=/x"), true, "exit code 0")
	has(t, "builtins", bash("echo still $PATH"), true, "still /nowhere\n")
	has(t, "anew", bash("ls -d . && echo [$B]", m{"fresh": true}), true, "exit code 0\n.\n[]\n")
	has(t, "too much", bash(`cd p; export BIG=$(head -c 100000 /dev/zero | tr '\0' x); export BIG2=$BIG`), true, "larger than")
	has(t, "but the folder", bash(`echo [$BIG]`), true, ", in p\n[]\n")
	bash("cd q")
	if err := os.RemoveAll(filepath.Join(b.root, "p")); err != nil {
		t.Fatal(err)
	}
	has(t, "a folder that is gone", bash("pwd"), true, "p/q is gone", b.root+"\n")
	if left, err := filepath.Glob(os.TempDir() + "/choir-output-*/*.before"); err != nil || len(left) != 0 {
		t.Errorf("left are %q %v", left, err)
	}
	// A command that removes the files of all has taken away its own.
	b.put("p/x", "", 0o644)
	bash("cd p; export E=5; rm -rf " + os.TempDir() + "/choir-output-*")
	bash("cd p; export F=6")
	has(t, "a new folder", bash("echo [$E$F]; seq 1000"), true, ", in p\n[6]\n", "the output is in ")
	has(t, "where an error is", bash("echo a\nfi"), true, "line 2: syntax error")
}

func TestBackground(t *testing.T) {
	b := newBox(t)
	var handle string
	begin := func(command string) string {
		r := b.call("bash", m{"command": command, "background": true})
		if at := regexp.MustCompile(`bg\d+_\w+`).FindString(r.Output); r.OK && at != "" {
			return at
		}
		t.Fatalf("%+v", r)
		return ""
	}
	b.call("bash", m{"command": "export SAID=hello"})
	handle = begin("echo $SAID; while [ ! -e go ]; do sleep 0.05; done; echo more >&2; echo changed >a; exit 7")
	look := func(wait int) result { return b.call("bash_output", m{"handle": handle, "wait_s": wait}) }
	has(t, "its beginning", look(60), true, handle+" is running, for ", " s\nhello\n")
	has(t, "nothing new", look(0), true, "(nothing new)")
	has(t, "the list", b.call("bash_output", m{}), true, handle+" (running): echo $SAID")
	b.put("a", "one\n", 0o644)
	b.call("read", m{"path": "a"})
	b.put("go", "", 0o644)
	var all string
	for range 100 {
		r := look(10)
		if all += r.Output; strings.Contains(r.Output, "has ended") {
			break
		}
	}
	if !strings.Contains(all, "more\n") || !strings.Contains(all, handle+" has ended, exit code 7\n") || strings.Contains(all, "hello") || !strings.Contains(all, "read them again before you edit them: a") {
		t.Errorf("%q", all)
	}
	has(t, "killed too late", b.call("bash_kill", m{"handle": handle}), true, "had ended before, exit code 7")

	handle = begin("sleep 1000 & echo $! >pid; wait")
	waitFor(t, "the child", func() bool { return readable(filepath.Join(b.root, "pid")) })
	has(t, "killed", b.call("bash_kill", m{"handle": handle}), true, handle+" is killed")
	has(t, "afterwards", look(0), true, "has ended, exit code 137 (killed)")
	pid := strings.TrimSpace(b.get("pid"))
	waitFor(t, "its child's end", func() bool {
		state, err := os.ReadFile("/proc/" + pid + "/stat")
		return err != nil || strings.Contains(string(state), ") Z ")
	})

	for range 8 {
		begin("sleep 1000")
	}
	has(t, "one too many", b.call("bash", m{"command": "sleep 1000", "background": true}), false, "8 commands run in the background already", "bash_kill")
	for _, name := range []string{"bash_output", "bash_kill"} {
		has(t, "a handle of another box", b.call(name, m{"handle": "bg1_zzzz"}), false, "no command bg1_zzzz", "a box that has been replaced", "sleep 1000")
	}
}

func readable(path string) bool {
	data, err := os.ReadFile(path)
	return err == nil && strings.HasSuffix(string(data), "\n")
}

func waitFor(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !f(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what + " does not come")
		}
	}
}

// TestTheBoxEndsItsCommands: closing the tools ends what runs in the background, and removes what was kept.
func TestTheBoxEndsItsCommands(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	root := t.TempDir()
	b, err := boxtools.New(boxtools.Options{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	if res, err := b.Call(t.Context(), "bash", []byte(`{"command":"echo $$ >pid; exec sleep 1000","background":true}`), ""); err != nil || !res.OK {
		t.Fatalf("%+v %v", res, err)
	}
	waitFor(t, "the command", func() bool { return readable(filepath.Join(root, "pid")) })
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	pid, _ := os.ReadFile(filepath.Join(root, "pid"))
	if _, err := os.Stat("/proc/" + strings.TrimSpace(string(pid))); err == nil {
		t.Error("it lives on")
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) != 0 {
		t.Errorf("left are %v %v", left, err)
	}
}
