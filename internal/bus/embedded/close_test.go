package embedded_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/test/choirtest"
)

// TestTheServerClosesStreamsAsItIsCalled shows that the server's unexported methods, which are
// called by name, have the expected signatures, and that the server ends all streams of an account
// with the same call with which one stream is closed here.
func TestTheServerClosesStreamsAsItIsCalled(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", "github.com/nats-io/nats-server/v2/server").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := strings.TrimSpace(string(out))
	for file, want := range map[string]string{
		"jetstream.go": "func (a *Account) lookupStream(name string) (*stream, error)",
		"stream.go":    "func (mset *stream) stop(deleteFlag, advisory bool) error",
	} {
		if !declares(t, filepath.Join(dir, file), want) {
			t.Errorf("%s does not declare %s: see close.go", file, want)
		}
	}
	b, err := os.ReadFile(filepath.Join(dir, "jetstream.go"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), "mset.stop(false, false)") {
		t.Error("the server ends its streams in another way: see close.go")
	}
}

func declares(t *testing.T, file, want string) bool {
	t.Helper()
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range parsed.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		var text strings.Builder
		if err := printer.Fprint(&text, set, &ast.FuncDecl{Recv: f.Recv, Name: f.Name, Type: f.Type}); err != nil {
			t.Fatal(err)
		}
		if text.String() == want {
			return true
		}
	}
	return false
}

// logs is a bus on a directory with logs of some messages each.
type logs struct {
	*bus.Bus
	t    *testing.T
	dir  string
	cids []contract.CID
}

func newLogs(t *testing.T, count, messages int) *logs {
	t.Helper()
	l := &logs{t: t, dir: filepath.Join(t.TempDir(), "nats")}
	l.open()
	for range count {
		cid := contract.NewCID()
		l.ensure(cid)
		for i := range messages {
			if _, err := l.JetStream().Publish(t.Context(), l.subject(cid), []byte(fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
		}
		l.cids = append(l.cids, cid)
	}
	return l
}

func (l *logs) subject(cid contract.CID) string {
	return contract.SubjectLog(cid, contract.KindSystem, "box.opened")
}

func (l *logs) open() {
	l.t.Helper()
	b, err := bus.Open(l.t.Context(), bus.Options{Dir: l.dir})
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { b.Close() })
	l.Bus = b
}

func (l *logs) ensure(cid contract.CID) {
	l.t.Helper()
	if err := l.EnsureStream(l.t.Context(), cid); err != nil {
		l.t.Fatal(err)
	}
}

func (l *logs) shut(cid contract.CID) {
	l.t.Helper()
	if err := l.CloseLog(l.t.Context(), cid); err != nil {
		l.t.Fatal(err)
	}
	if open, err := l.Serves(l.t.Context(), cid); open || err != nil {
		l.t.Errorf("a log that was closed is open: %v, %v", open, err)
	}
}

// holds fails unless a log has exactly these messages, in order.
func (l *logs) holds(cid contract.CID, messages int) {
	l.t.Helper()
	s, err := l.JetStream().Stream(l.t.Context(), contract.StreamLog(cid))
	if err != nil {
		l.t.Fatal(err)
	}
	if got := s.CachedInfo().State; got.Msgs != uint64(messages) || got.LastSeq != uint64(messages) {
		l.t.Errorf("it has %d messages up to %d, not %d", got.Msgs, got.LastSeq, messages)
	}
	for i := range messages {
		if m, err := s.GetMsg(l.t.Context(), uint64(i)+1); err != nil || string(m.Data) != fmt.Sprint(i) {
			l.t.Errorf("message %d: %v", i, err)
		}
	}
}

// goroutines counts the goroutines of streams, recognised by their stacks.
func goroutines(t *testing.T) int {
	t.Helper()
	var text strings.Builder
	if err := pprof.Lookup("goroutine").WriteTo(&text, 2); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, g := range strings.Split(text.String(), "\n\n") {
		if strings.Contains(g, "server.(*stream)") || strings.Contains(g, "server.(*fileStore)") {
			n++
		}
	}
	return n
}

// TestALogThatIsShutCostsNoGoroutine shows that a closed log has no goroutines and refuses
// messages, that other logs are served meanwhile, and that each log is unchanged once it is opened
// again, also by another process.
func TestALogThatIsShutCostsNoGoroutine(t *testing.T) {
	l := newLogs(t, 100, 3)
	if n := goroutines(t); n < 100 {
		t.Fatalf("%d goroutines of streams are seen", n)
	}
	for _, cid := range l.cids[2:] {
		l.shut(cid)
	}
	var two int
	choirtest.Eventually(t, 30*time.Second, "only two logs have goroutines", func() bool {
		two = goroutines(t)
		return two <= 8
	})
	if two == 0 {
		t.Error("nothing runs for those that are open")
	}
	m := nats.NewMsg(l.subject(l.cids[2]))
	if _, err := l.JetStream().PublishMsg(t.Context(), m); err == nil {
		t.Error("a log that is closed took a message")
	}
	l.holds(l.cids[0], 3)
	l.ensure(l.cids[2])
	l.holds(l.cids[2], 3)
	if _, err := l.JetStream().Publish(t.Context(), l.subject(l.cids[2]), []byte("3")); err != nil {
		t.Fatal(err)
	}
	l.shut(l.cids[2])
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l.open()
	l.holds(l.cids[2], 4)
	l.holds(l.cids[3], 3)
}

// TestALogThatIsShutIsRemoved shows that a closed log can be removed, and that its files do not
// come back.
func TestALogThatIsShutIsRemoved(t *testing.T) {
	l := newLogs(t, 1, 3)
	l.shut(l.cids[0])
	if err := l.Remove(t.Context(), l.cids[0]); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if left, err := bus.Streams(l.dir); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestALogThatCannotBeOpenedIsRemoved shows that a log that the server fails to open, or that is
// set apart, can be removed with everything that is kept of it, and that a new one is empty.
func TestALogThatCannotBeOpenedIsRemoved(t *testing.T) {
	l := newLogs(t, 3, 3)
	l.shut(l.cids[0])
	l.broken(func() {
		if err := l.EnsureStream(t.Context(), l.cids[0]); err == nil {
			t.Error("it was opened")
		}
		if err := l.Remove(t.Context(), l.cids[0]); err != nil {
			t.Fatal(err)
		}
	})
	l.shut(l.cids[1])
	found, err := bus.Streams(l.dir)
	if err != nil || len(found) != 2 {
		t.Fatal(found, err)
	}
	for _, s := range found {
		if s.Of != l.cids[1] {
			continue
		}
		to := filepath.Join(l.dir, s.MovedPath(0))
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(l.dir, s.Path), to); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Remove(t.Context(), l.cids[1]); err != nil {
		t.Fatal(err)
	}
	if left, err := bus.Streams(l.dir); err != nil || len(left) != 1 || left[0].Of != l.cids[2] {
		t.Errorf("left: %v, %v", left, err)
	}
	l.holds(l.cids[2], 3)
	l.ensure(l.cids[0])
	l.holds(l.cids[0], 0)
}

// TestALogThatCannotBeOpenedIsNotDeleted: the server deletes a stream that it can't open. Its files
// must be there afterwards, and open once the cause is gone.
func TestALogThatCannotBeOpenedIsNotDeleted(t *testing.T) {
	for name, again := range map[string]func(*logs) error{
		"while it runs": func(l *logs) error { return l.EnsureStream(l.t.Context(), l.cids[0]) },
		"at its start": func(l *logs) error {
			if err := l.Close(); err != nil {
				l.t.Fatal(err)
			}
			l.open()
			_, err := l.JetStream().Stream(l.t.Context(), contract.StreamLog(l.cids[0]))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLogs(t, 2, 3)
			l.shut(l.cids[0])
			l.broken(func() {
				if err := again(l); err == nil {
					t.Error("it was opened")
				}
			})
			l.ensure(l.cids[0])
			l.holds(l.cids[0], 3)
			l.holds(l.cids[1], 3)
			if left, err := os.ReadDir(filepath.Join(l.dir, "held")); err != nil || len(left) != 0 {
				t.Errorf("second names are left: %v, %v", left, err)
			}
		})
	}
}

// broken calls f while the first log can't be opened, because a file is in the place of a directory
// that the server needs.
func (l *logs) broken(f func()) {
	l.t.Helper()
	found, err := filepath.Glob(filepath.Join(l.dir, "jetstream", "*", "streams", contract.StreamLog(l.cids[0])))
	if err != nil || len(found) != 1 {
		l.t.Fatal(found, err)
	}
	at := filepath.Join(found[0], "obs")
	if err := os.RemoveAll(at); err != nil {
		l.t.Fatal(err)
	}
	if err := os.WriteFile(at, nil, 0o600); err != nil {
		l.t.Fatal(err)
	}
	f()
	if err := os.RemoveAll(at); err != nil {
		l.t.Fatal(err)
	}
}

// TestWhatADeadProcessHeldIsPutBack: a process that died after the server deleted a log, and before
// it noticed, left second names of the files, from which the next process restores the log.
func TestWhatADeadProcessHeldIsPutBack(t *testing.T) {
	l := newLogs(t, 2, 3)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(l.dir, "jetstream", "*", "streams", contract.StreamLog(l.cids[0])))
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	store := filepath.Join(l.dir, "jetstream")
	err = filepath.WalkDir(found[0], func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		below, err := filepath.Rel(store, path)
		if err != nil {
			return err
		}
		return os.Link(path, filepath.Join(l.dir, "held", strings.ReplaceAll(below, "/", "%2F")))
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(found[0]); err != nil {
		t.Fatal(err)
	}
	l.open()
	l.holds(l.cids[0], 3)
}
