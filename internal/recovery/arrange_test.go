package recovery_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/ledger"
	"choir.dev/choiros/internal/recovery"
)

// fill stores events of computers in a new data directory and returns it with everything
// closed but its lock.
func fill(t *testing.T, cids ...contract.CID) *datadir.Dir {
	t.Helper()
	dir, err := datadir.Open(filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dir.Close() })
	write(t, dir, 5, cids...)
	return dir
}

// write appends n events to each log.
func write(t *testing.T, dir *datadir.Dir, n int, cids ...contract.CID) {
	t.Helper()
	b, err := bus.Open(t.Context(), bus.Options{Dir: dir.Path("nats"), KeysDir: dir.Path("keys")})
	if err != nil {
		t.Fatal(err)
	}
	for _, cid := range cids {
		if err := os.MkdirAll(dir.Computer(cid), 0o700); err != nil {
			t.Fatal(err)
		}
		l, err := ledger.Open(t.Context(), b.JetStream(), ledger.Options{CID: cid, Head: dir.Computer(cid, "log.head")})
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if _, err := l.Append(t.Context(), contract.Draft{Actor: contract.Person(""), Type: "computer.renamed", Data: contract.ComputerRenamed{Name: fmt.Sprint("name ", i)}}); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

// stored returns what a store's files hold of each log.
func stored(t *testing.T, dir *datadir.Dir) map[contract.CID]string {
	t.Helper()
	out := map[contract.CID]string{}
	if _, err := bus.ReadStore(t.Context(), dir.Path("nats"), "", func(m bus.Message) error {
		out[contract.CID(strings.Split(m.Subject, ".")[1])] += string(m.Data) + "\n"
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

func inspect(t *testing.T, dir *datadir.Dir) *recovery.Report {
	t.Helper()
	r, err := recovery.Inspect(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func arrange(t *testing.T, dir *datadir.Dir) *recovery.Report {
	t.Helper()
	r := inspect(t, dir)
	if err := recovery.Arrange(dir, r); err != nil {
		t.Fatal(err)
	}
	return r
}

// The version of a directory that an earlier ChoirOS wrote is raised, durably, before its
// logs are opened, and also before one of them is made anew, because the earlier version
// would take what is then stored for damage. This holds with and without a list of parts.
func TestADirectoryIsOfThisVersionBeforeItsLogsAreOpened(t *testing.T) {
	for _, before := range []string{"1", "4"} {
		for _, recover := range []bool{false, true} {
			cid := contract.NewCID()
			dir := fill(t, cid)
			at := dir.Path()
			if err := os.WriteFile(dir.Path("control.sqlite"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(dir.Mark(cid), dir.Commit(), dir.Close()); err != nil {
				t.Fatal(err)
			}
			if before == "1" {
				if err := os.Remove(filepath.Join(at, "parts")); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(at, "version"), []byte(before+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			dir, err := datadir.Open(at)
			if err != nil {
				t.Fatal(err)
			}
			defer dir.Close()
			if recover {
				cut(t, dir, cid)
				if err := os.Remove(dir.Path("keys", "account.nk")); err != nil { // so that the whole store is made anew
					t.Fatal(err)
				}
				seen := versions{Handler: slog.DiscardHandler, mu: &sync.Mutex{}, file: dir.Path("version"), seen: map[string]bool{}}
				_, err = recovery.Recover(t.Context(), recovery.Options{Dir: dir, Driver: "local", Logger: slog.New(seen)})
				if len(seen.seen) != 1 || !seen.seen[fmt.Sprintln(datadir.Format)] {
					t.Errorf("it was %s, and while a log was made anew %v", before, seen.seen)
				}
			} else {
				err = recovery.Arrange(dir, inspect(t, dir))
			}
			if err != nil {
				t.Fatal(err)
			}
			if b, err := os.ReadFile(dir.Path("version")); err != nil || string(b) != fmt.Sprintln(datadir.Format) {
				t.Errorf("it was %s, and is %q, %v", before, b, err)
			}
			if parts, err := dir.Parts(); err != nil || len(parts) == 0 {
				t.Errorf("what is there is %v, %v", parts, err)
			}
		}
	}
}

// versions records a directory's version whenever a server logs something.
type versions struct {
	slog.Handler
	file string
	mu   *sync.Mutex
	seen map[string]bool
}

func (v versions) Enabled(context.Context, slog.Level) bool { return true }

func (v versions) Handle(_ context.Context, r slog.Record) error {
	b, err := os.ReadFile(v.file)
	v.mu.Lock()
	defer v.mu.Unlock()
	if strings.HasPrefix(r.Message, "nats: ") {
		v.seen[string(b)] = true
	}
	return err
}

// A damaged log is moved aside unchanged, and the server opens the others; it stays aside
// until its files are whole again, and is then moved back.
func TestADamagedLogIsSetApartUntilItIsWhole(t *testing.T) {
	a, b := contract.NewCID(), contract.NewCID()
	dir := fill(t, a, b)
	if r := arrange(t, dir); !r.Whole() {
		t.Fatalf("a whole store: %+v", r)
	}
	streams, err := filepath.Glob(dir.Path("nats", "jetstream", "*", "streams", contract.StreamLog(a)))
	if err != nil || len(streams) != 1 {
		t.Fatal(streams, err)
	}
	in := streams[0]
	apart := dir.Path("nats", "apart", filepath.Base(filepath.Dir(filepath.Dir(in))), filepath.Base(in))
	good, err := os.ReadFile(filepath.Join(in, "msgs", "1.blk"))
	if err != nil {
		t.Fatal(err)
	}
	bad := append([]byte(nil), good...)
	bad[len(bad)/2] ^= 4
	if err := os.WriteFile(filepath.Join(in, "msgs", "1.blk"), bad, 0o600); err != nil {
		t.Fatal(err)
	}
	for start := range 3 {
		r := arrange(t, dir)
		if !r.Usable() || len(r.Of(a)) == 0 || len(r.Of(b)) > 0 {
			t.Fatalf("start %d: %+v", start, r)
		}
		if now, err := os.ReadFile(filepath.Join(apart, "msgs", "1.blk")); err != nil || string(now) != string(bad) {
			t.Fatalf("start %d: the damaged log is not as it was (%v)", start, err)
		}
		write(t, dir, 2, b)
	}
	if err := os.WriteFile(filepath.Join(apart, "msgs", "1.blk"), good, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := arrange(t, dir); !r.Whole() {
		t.Fatalf("with its block from a backup: %+v", r)
	}
	write(t, dir, 2, a, b)
	if r := inspect(t, dir); !r.Whole() {
		t.Fatalf("in the end: %+v", r)
	}
	if n := strings.Count(stored(t, dir)[a], "\n"); n != 7 {
		t.Errorf("%d events; want 7", n)
	}
}

// Two copies of one computer's log are damage of that computer, whichever is whole. A
// computer that was killed while it made its first stream is undamaged and wakes.
func TestTwoLogsOfOneComputerAndAStreamHalfMade(t *testing.T) {
	a, b := contract.NewCID(), contract.NewCID()
	dir := fill(t, a, b)
	streams, err := bus.Streams(dir.Path("nats"))
	if err != nil || len(streams) != 2 {
		t.Fatal(streams, err)
	}
	for _, s := range streams {
		if s.Of == a {
			if err := os.MkdirAll(filepath.Dir(dir.Path("nats", s.MovedPath(0))), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.CopyFS(dir.Path("nats", s.MovedPath(0)), os.DirFS(dir.Path("nats", s.Path))); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := stored(t, dir)[b]
	for range 2 {
		if r := arrange(t, dir); !r.Usable() || len(r.Of(a)) == 0 || len(r.Of(b)) > 0 {
			t.Fatalf("two logs: %+v", r)
		}
		write(t, dir, 1, b)
	}
	res, err := recovery.Recover(t.Context(), recovery.Options{Dir: dir, Driver: "local", Logger: slog.New(slog.DiscardHandler)})
	if err != nil || res.Computers[a].Kept != 5 || res.Computers[a].Lost != 0 {
		t.Fatalf("recovery of two logs: %+v, %v", res, err)
	}
	if r := arrange(t, dir); !r.Whole() || !strings.HasPrefix(stored(t, dir)[b], want) {
		t.Fatalf("after it: %+v", r)
	}

	begun := contract.NewCID()
	dir = fill(t, b)
	accounts, err := bus.StoreAccounts(dir.Path("nats"))
	if err != nil || len(accounts) != 1 {
		t.Fatal(accounts, err)
	}
	half := dir.Path("nats", "jetstream", accounts[0], "streams", contract.StreamLog(begun))
	if err := os.MkdirAll(filepath.Join(half, "msgs"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(half, "meta.inf"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir.Computer(begun), 0o700); err != nil {
		t.Fatal(err)
	}
	if r := arrange(t, dir); !r.Whole() {
		t.Fatalf("a stream half made: %+v", r)
	}
	write(t, dir, 1, begun)
	if r := inspect(t, dir); !r.Whole() {
		t.Errorf("after it woke: %+v", r)
	}
}

// oldStore turns a data directory into one whose logs share one stream, as earlier versions
// stored them.
func oldStore(t *testing.T, dir *datadir.Dir) {
	t.Helper()
	type message struct {
		subject string
		header  nats.Header
		data    []byte
	}
	byLog := map[contract.CID][]message{}
	if _, err := bus.ReadStore(t.Context(), dir.Path("nats"), "", func(m bus.Message) error {
		byLog[m.Of] = append(byLog[m.Of], message{m.Subject, nats.Header{"Choir-Owner": {"older"}}, append([]byte(nil), m.Data...)})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir.Path("nats")); err != nil {
		t.Fatal(err)
	}
	b, err := bus.Open(t.Context(), bus.Options{Dir: dir.Path("nats"), KeysDir: dir.Path("keys")})
	if err != nil {
		t.Fatal(err)
	}
	config := jetstream.StreamConfig{Name: contract.StreamShared, Subjects: []string{"log.>"}, Storage: jetstream.FileStorage}
	if _, err := b.JetStream().CreateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		more := false
		for _, list := range byLog {
			if i < len(list) {
				more = true
				if _, err := b.JetStream().PublishMsg(t.Context(), &nats.Msg{Subject: list[i].subject, Header: list[i].header, Data: list[i].data}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if !more {
			break
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

// A store of an earlier version, with every log in one stream, becomes one with a stream
// for each log. If it is damaged, nobody uses it until recovery has made the streams.
func TestAnOldStoreIsSplit(t *testing.T) {
	a, b := contract.NewCID(), contract.NewCID()
	dir := fill(t, a, b)
	want := stored(t, dir)
	oldStore(t, dir)
	r := inspect(t, dir)
	if !r.Whole() {
		t.Fatalf("the old store: %+v", r)
	}
	if done, err := recovery.Split(t.Context(), dir, r, slog.New(slog.DiscardHandler)); err != nil || !done {
		t.Fatal(done, err)
	}
	if r = arrange(t, dir); !r.Whole() {
		t.Fatalf("after it was split: %+v", r)
	}
	if got := stored(t, dir); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the logs are\n%v\nthey were\n%v", got, want)
	}
	if done, err := recovery.Split(t.Context(), dir, r, slog.New(slog.DiscardHandler)); err != nil || done {
		t.Errorf("split again: %v, %v", done, err)
	}
	write(t, dir, 2, a, b)
	if kept, err := filepath.Glob(dir.Path("aside", "*", "nats", "jetstream", "*", "streams", contract.StreamShared)); err != nil || len(kept) != 1 {
		t.Errorf("the old store is kept as %v (%v)", kept, err)
	}

	dir = fill(t, a, b)
	oldStore(t, dir)
	blocks, err := filepath.Glob(dir.Path("nats", "jetstream", "*", "streams", contract.StreamShared, "msgs", "1.blk"))
	if err != nil || len(blocks) != 1 {
		t.Fatal(blocks, err)
	}
	st, err := os.Stat(blocks[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(blocks[0], st.Size()-100); err != nil {
		t.Fatal(err)
	}
	r = inspect(t, dir)
	if r.Usable() || len(r.Of(a)) == 0 || len(r.Of(b)) == 0 {
		t.Fatalf("a damaged old store: %+v", r)
	}
	if done, err := recovery.Split(t.Context(), dir, r, slog.New(slog.DiscardHandler)); err != nil || done {
		t.Fatalf("a damaged old store was split: %v, %v", done, err)
	}
	res, err := recovery.Recover(t.Context(), recovery.Options{Dir: dir, Driver: "local", Logger: slog.New(slog.DiscardHandler)})
	if err != nil || len(res.Computers) != 2 {
		t.Fatalf("%+v, %v", res, err)
	}
	if r = arrange(t, dir); !r.Whole() {
		t.Fatalf("after recovery: %+v", r)
	}
	write(t, dir, 2, a, b)
	if _, err := os.Lstat(dir.Path("nats.new")); !os.IsNotExist(err) {
		t.Errorf("left behind: %v", err)
	}
}
