package e2e_test

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/test/choirtest"
	"choir.dev/choiros/test/modelserver"
)

// needles are the forms in which a key could leak.
type needles map[string][]byte

func needlesOf(key string) needles {
	n := needles{
		"raw":       []byte(key),
		"hex":       []byte(hex.EncodeToString([]byte(key))),
		"upper hex": bytes.ToUpper([]byte(hex.EncodeToString([]byte(key)))),
	}
	for name, enc := range map[string]*base64.Encoding{"base64": base64.RawStdEncoding, "base64url": base64.RawURLEncoding} {
		for shift := range 3 {
			// Within a longer text the key begins at one of three positions of a group of base64.
			// Groups that it shares with its neighbours are left out.
			text := enc.EncodeToString(append(bytes.Repeat([]byte{'x'}, shift), key...))
			first := (shift*8 + 5) / 6 // the first character that depends on the key only
			last := (shift + len(key)) * 8 / 6
			n[fmt.Sprintf("%s at %d", name, shift)] = []byte(text[first:last])
		}
	}
	return n
}

// in returns which forms a text contains.
func (n needles) in(b []byte) []string {
	var out []string
	for name, needle := range n {
		if bytes.Contains(b, needle) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// What is too long to hold in memory is searched in windows that overlap.
const window, overlap = 1 << 20, 1 << 10

// windows are reused, because a process has hundreds of regions of memory, most of them small.
var windows = sync.Pool{New: func() any { return new([window + overlap]byte) }}

// stream searches what is too long to hold in memory.
func (n needles) stream(r io.Reader) ([]string, error) {
	whole := windows.Get().(*[window + overlap]byte)
	defer windows.Put(whole)
	buf := whole[:0]
	found := map[string]bool{}
	for {
		k, err := io.ReadFull(r, buf[len(buf) : window+overlap][:window])
		buf = buf[:len(buf)+k]
		for _, name := range n.in(buf) {
			found[name] = true
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			var out []string
			for name := range found {
				out = append(out, name)
			}
			slices.Sort(out)
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		if len(buf) > overlap {
			buf = append(buf[:0], buf[len(buf)-overlap:]...)
		}
	}
}

// files searches every file below a folder, unchanged and unpacked, and returns where something was
// found and how many files there were.
func (n needles) files(t *testing.T, dir string) (found []string, count int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the instance is still working
		}
		if err != nil {
			return err
		}
		if d.Type()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			found = append(found, where(path+" (target)", n.in([]byte(target)))...)
			return nil
		}
		found = append(found, where(path+" (name)", n.in([]byte(d.Name())))...)
		if !d.Type().IsRegular() {
			return nil
		}
		f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		defer f.Close()
		count++
		hits, err := n.stream(f)
		if err != nil {
			return err
		}
		found = append(found, where(path, hits)...)
		for how, open := range unpackers {
			if _, err := f.Seek(0, io.SeekStart); err != nil {
				return err
			}
			r, err := open(f)
			if err != nil {
				continue // it is not packed in this format
			}
			// What can be unpacked before an error counts.
			hits, _ := n.stream(tolerant{r})
			found = append(found, where(path+" ("+how+")", hits)...)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found, count
}

// unpackers are the formats in which files may be packed here: git's objects, and npm's archives.
var unpackers = map[string]func(io.Reader) (io.Reader, error){
	"gzip": func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) },
	"zlib": func(r io.Reader) (io.Reader, error) { return zlib.NewReader(r) },
}

// tolerant ends a stream where reading it fails.
type tolerant struct{ r io.Reader }

func (t tolerant) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	if err != nil {
		err = io.EOF
	}
	return n, err
}

func where(place string, hits []string) []string {
	var out []string
	for _, h := range hits {
		out = append(out, place+": "+h)
	}
	return out
}

// repositories returns every repository below a folder.
func repositories(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && d.IsDir() && d.Name() == "objects" {
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), "HEAD")); err == nil {
				out = append(out, filepath.Dir(path))
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// objects searches every object of a repository, reachable or not.
func (n needles) objects(t *testing.T, repository string) (found []string, count int) {
	t.Helper()
	cmd := exec.Command("git", "-c", "safe.directory=*", "--git-dir", repository, "cat-file", "--batch-all-objects", "--batch", "--buffer")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	hits, err := n.stream(out)
	if err := errors.Join(err, cmd.Wait()); err != nil {
		t.Fatal(err)
	}
	list := exec.Command("git", "-c", "safe.directory=*", "--git-dir", repository, "cat-file", "--batch-all-objects", "--batch-check", "--unordered")
	ids, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	return where("objects of "+repository, hits), bytes.Count(ids, []byte("\n"))
}

// TestTheSearchFindsACanary is the control: it shows that the next test would find a key if there
// were one.
func TestTheSearchFindsACanary(t *testing.T) {
	t.Parallel()
	key := newKey()
	n := needlesOf(key)
	dir := t.TempDir()
	write := func(name string, b []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	far := bytes.Repeat([]byte("."), 1<<20-len(key)/2) // across the border of two windows
	write("raw", append(append(far, key...), far...))
	write("hex", []byte("<"+hex.EncodeToString([]byte(key))+">"))
	for i := range 3 {
		write(fmt.Sprint("base64-", i), []byte(base64.StdEncoding.EncodeToString([]byte("abc"[:i]+key+"and so on"))))
		write(fmt.Sprint("base64url-", i), []byte(base64.URLEncoding.EncodeToString([]byte("abc"[:i]+key))))
	}
	var packed, squeezed bytes.Buffer
	for _, w := range []io.WriteCloser{gzip.NewWriter(&packed), zlib.NewWriter(&squeezed)} {
		// The key is between letters that compress well, so that it is not stored unchanged.
		if _, err := fmt.Fprintf(w, "%s%s%s", strings.Repeat("sk-can", 50), key, strings.Repeat("ary-", 50)); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	write("gzip", packed.Bytes())
	write("zlib", squeezed.Bytes())
	write("clean", []byte(key[:len(key)-1]))
	found, count := n.files(t, dir)
	for _, e := range []string{"raw", "hex", "base64-0", "base64-1", "base64-2", "base64url-0", "base64url-1", "base64url-2", "gzip", "zlib"} {
		if !slices.ContainsFunc(found, func(f string) bool { return strings.HasPrefix(f, filepath.Join(dir, e)) }) {
			t.Errorf("%s was not found: %v", e, found)
		}
	}
	if slices.ContainsFunc(found, func(f string) bool { return strings.HasPrefix(f, filepath.Join(dir, "clean")) }) || count != 11 {
		t.Errorf("%d files, found %v", count, found)
	}

	// This is in an object that no ref reaches, of a repository inside another one's tree.
	nested := filepath.Join(dir, "a", "b")
	if err := os.MkdirAll(nested, 0o700); err != nil {
		t.Fatal(err)
	}
	git(t, nested, "init", "-q")
	write("object", []byte(strings.Repeat("sk-canary", 100)+key))
	git(t, nested, "hash-object", "-w", filepath.Join(dir, "object"))
	all := repositories(t, dir)
	if len(all) != 1 {
		t.Fatalf("repositories: %v", all)
	}
	if found, count := n.objects(t, all[0]); len(found) == 0 || count != 1 {
		t.Errorf("%d objects, found %v", count, found)
	}

	// This is in the environment, the arguments and the memory of a grandchild.
	cmd := exec.Command("sh", "-c", `read -r line; SECRET="$line" sh -c 'sleep 1000 & wait' & wait`)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	}()
	if _, err := fmt.Fprintln(in, key); err != nil {
		t.Fatal(err)
	}
	choirtest.Eventually(t, 10*time.Second, "the grandchild runs", func() bool { return len(running(t, cmd.Process.Pid, "sleep 1000")) > 0 })
	sleeper := running(t, os.Getpid(), "sleep 1000")
	if found, _ := n.process(t, sleeper[len(sleeper)-1].pid); !slices.ContainsFunc(found, func(f string) bool { return strings.Contains(f, "environ: raw") }) {
		t.Errorf("the grandchild's environment: %v", found)
	}
	if found, memory := n.process(t, cmd.Process.Pid); !slices.ContainsFunc(found, func(f string) bool { return strings.Contains(f, "/mem ") }) {
		t.Errorf("%d bytes of the child's memory: %v", memory, found)
	}
}

// TestTheKeyIsNowhere runs tasks with a model whose service repeats the key in its answers and its
// errors, and then searches for the key everywhere.
func TestTheKeyIsNowhere(t *testing.T) {
	t.Parallel()
	key, stored := newKey(), newKey()
	echo := &modelserver.Fault{Kind: "echo_key"}
	marker := "4711.25" // marks processes in boxes
	turns := append(turnsOf("director", "mind the key",
		modelserver.Turn{Fault: &modelserver.Fault{Kind: "leak"}, Match: "leak it"},
		modelserver.Turn{Fault: echo},
		delegate(object{"kind": "agent", "goal": "mind the key", "tools": []any{"bash", "write"}, "verify": object{"profile": "smoke", "commands": []any{[]any{"sh", "-c", "sleep " + marker + "2; true"}}}, "egress": object{"profile": "default"}}),
		report("done", "The task was done."),
	), turnsOf("associate", "mind the key",
		modelserver.Turn{Fault: echo},
		modelserver.Turn{Calls: call("write", object{"path": "workspace/sum/more.js", "content": "exports.more = 1;\n"})},
		bash("env > workspace/env.txt; cat /proc/*/environ /proc/*/cmdline > workspace/proc.bin 2>/dev/null; sed -i 's/a - b/a + b/' workspace/sum/sum.js; npm test --prefix workspace/sum; sleep "+marker+"; true"),
		finish("ok", "done"),
	)...)
	s := modelserver.New(modelserver.Script{Turns: turns}).Start()
	t.Cleanup(s.Close)
	in := choirtest.Start(t, choirtest.Options{Env: modelEnv(s, modelserver.Anthropic, key), Args: []string{"--verbose"}})
	in.Must(t, "add", makeFixture(t))
	if r, err := in.RunInput(t.Context(), []byte(stored), "secrets", "set", "OPENAI_API_KEY"); err != nil || r.Code != 0 {
		t.Fatalf("secrets set: %v %+v", err, r)
	}
	looker := lookAt(t, in)
	run := submit(t, in, "mind the key")
	typed := make(chan error, 1)
	go func() { // the user's own command, in a terminal box
		r, err := in.Run(context.Background(), "exec", "--", "sh", "-c", "sleep "+marker+"1; true")
		if err == nil && r.Code != 0 {
			err = fmt.Errorf("exec: %+v", r)
		}
		typed <- err
	}()
	both := map[string]needles{"the environment's key": needlesOf(key), "the stored key": needlesOf(stored)}
	// The control plane has the key: the search that finds it there would find it in a box.
	if found, _ := both["the environment's key"].process(t, in.PID); len(found) < 2 {
		t.Errorf("the search does not find the key where it has to be: %v", found)
	}
	// In the same way, the search that finds the dev server's own token in its box would find a key
	// there.
	token := needlesOf(looker.devToken(t))
	for _, stage := range []struct {
		kinds    []contract.BoxKind
		sleepers []string
	}{
		{[]contract.BoxKind{contract.BoxKeeper, contract.BoxDesktop, contract.BoxDirector, contract.BoxAssociate, contract.BoxTask, contract.BoxTerminal},
			[]string{"sleep " + marker, "sleep " + marker + "1"}},
		{[]contract.BoxKind{contract.BoxKeeper, contract.BoxDesktop, contract.BoxDirector, contract.BoxVerify},
			[]string{"sleep " + marker + "2"}},
	} {
		var sleepers []process
		choirtest.Eventually(t, 60*time.Second, fmt.Sprintf("%v runs", stage.sleepers), func() bool {
			sleepers = slices.DeleteFunc(descendants(t, in.PID), func(p process) bool { return !slices.Contains(stage.sleepers, p.cmdline) })
			return len(sleepers) == len(stage.sleepers)
		})
		checkProcesses(t, in, both, stage.kinds)
		if found := inBox(t, in, contract.BoxDesktop, token); !slices.ContainsFunc(found, func(f string) bool { return strings.Contains(f, "/mem ") }) {
			t.Errorf("the search does not find the dev server's token in the desktop's box: %v", found)
		}
		for _, p := range sleepers {
			if err := syscall.Kill(p.pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := <-typed; err != nil {
		t.Error(err)
	}
	if r := ended(t, in, run); r.Status != "done" || len(r.Tasks) != 1 || r.Tasks[0].Status != "ok" {
		t.Fatalf("run: %+v (turns left: %v)", r, s.Left())
	}
	if leaked := prompt(t, in, "mind the key and leak it"); leaked.Status != "failed" || leaked.code != 1 {
		t.Errorf("the leaking run: %+v", leaked)
	}
	if left := s.Left(); len(left) != 0 {
		t.Errorf("turns %v were not asked for", left)
	}
	for _, r := range s.Requests() {
		if r.Key != key {
			t.Errorf("the service was sent %q as a key", r.Key)
		}
	}

	for what, n := range both {
		checkNowhere(t, in, what, n)
	}
	in.Stop(t)
	for what, n := range both {
		found, files := n.files(t, in.Data)
		for _, f := range found {
			t.Errorf("%s is in %s", what, f)
		}
		if files < 100 {
			t.Errorf("looked into %d files only", files)
		}
		for _, hit := range n.in([]byte(in.Logs())) {
			t.Errorf("%s is in the logs: %s", what, hit)
		}
	}
}

// checkProcesses searches every process of every box, from the host. Boxes of these kinds have to
// be among them, each with memory that could be read.
func checkProcesses(t *testing.T, in *choirtest.Instance, keys map[string]needles, kinds []contract.BoxKind) {
	t.Helper()
	all := descendants(t, in.PID)
	guests := map[contract.BoxKind]int64{} // bytes of their memory that were read
	for _, p := range all {
		var read int64
		for what, n := range keys {
			found, memory := n.process(t, p.pid)
			read += memory
			for _, f := range found {
				t.Errorf("%s is in %s (%s)", what, f, p.cmdline)
			}
		}
		if kind := p.guest(); kind != "" {
			guests[kind] += read
		}
	}
	for _, kind := range kinds {
		if guests[kind] < 1<<20 {
			t.Errorf("looked into %d bytes of guests of %s boxes; all processes: %+v", guests[kind], kind, all)
		}
	}
}

func checkNowhere(t *testing.T, in *choirtest.Instance, what string, n needles) {
	t.Helper()
	for _, args := range [][]string{{"events"}, {"runs", "--json"}, {"models", "--json"}, {"secrets", "ls", "--json"}, {"checkpoints", "--json"}} {
		out := in.Must(t, args...)
		if len(out) < 10 {
			t.Errorf("choir %v printed %q", args, out)
		}
		for _, hit := range n.in([]byte(out)) {
			t.Errorf("%s is in choir %v: %s", what, args, hit)
		}
	}
	total := 0
	all := repositories(t, in.Data)
	for _, repository := range all {
		found, count := n.objects(t, repository)
		total += count
		for _, f := range found {
			t.Errorf("%s is in %s", what, f)
		}
	}
	if len(all) < 2 || total < 50 {
		t.Errorf("looked into %d repositories with %d objects; want the workspace's and the nested one at least: %v", len(all), total, all)
	}
}
