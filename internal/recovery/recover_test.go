package recovery_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/ledger"
	"choir.dev/choiros/internal/recovery"
)

// Of two damaged logs, the named one is made anew and the other is left as it was; without
// a name, both are recovered.
func TestOnlyTheNamedComputerIsRecovered(t *testing.T) {
	a, b := contract.NewCID(), contract.NewCID()
	dir := fill(t, a, b)
	for _, cid := range []contract.CID{a, b} {
		blocks, err := filepath.Glob(dir.Path("nats", "jetstream", "*", "streams", contract.StreamLog(cid), "msgs", "1.blk"))
		if err != nil || len(blocks) != 1 {
			t.Fatal(blocks, err)
		}
		st, err := os.Stat(blocks[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(blocks[0], st.Size()/2); err != nil {
			t.Fatal(err)
		}
	}
	left := stored(t, dir)[b]
	o := recovery.Options{Dir: dir, Driver: "local", Logger: slog.New(slog.DiscardHandler), Only: []contract.CID{a}}
	res, err := recovery.Recover(t.Context(), o)
	if err != nil || len(res.Computers) != 1 || res.Computers[a].Lost == 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	r := arrange(t, dir)
	if !r.Usable() || len(r.Of(a)) > 0 || len(r.Of(b)) == 0 {
		t.Fatalf("after the one was recovered: %+v", r)
	}
	if now := stored(t, dir)[b]; now != left {
		t.Errorf("the other's log was touched")
	}
	write(t, dir, 1, a)
	o.Only = nil
	if res, err = recovery.Recover(t.Context(), o); err != nil || len(res.Computers) != 1 || res.Computers[b].Lost == 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	if r := arrange(t, dir); !r.Whole() {
		t.Fatalf("in the end: %+v", r)
	}
	if kept := stored(t, dir)[b]; !strings.HasPrefix(kept, left) || !strings.Contains(kept, "log.recovered") {
		t.Errorf("the other's log is %s", kept)
	}
}

// cut truncates a computer's log to half its length.
func cut(t *testing.T, dir *datadir.Dir, cid contract.CID) {
	t.Helper()
	blocks, err := filepath.Glob(dir.Path("nats", "jetstream", "*", "streams", contract.StreamLog(cid), "msgs", "1.blk"))
	if err != nil || len(blocks) != 1 {
		t.Fatal(blocks, err)
	}
	st, err := os.Stat(blocks[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(blocks[0], st.Size()/2); err != nil {
		t.Fatal(err)
	}
}

// One computer is recovered, and its log opened, in a store that serves another computer
// meanwhile.
func TestOneIsRecoveredWhileAnotherWrites(t *testing.T) {
	a, b := contract.NewCID(), contract.NewCID()
	dir := fill(t, a, b)
	cut(t, dir, a)
	left := strings.Split(stored(t, dir)[a], "\n")
	if r := arrange(t, dir); !r.Usable() || len(r.Of(a)) == 0 || len(r.Of(b)) > 0 {
		t.Fatalf("%+v", r)
	}
	live, err := bus.Open(t.Context(), bus.Options{Dir: dir.Path("nats"), KeysDir: dir.Path("keys")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := live.Close(); err != nil {
			t.Error(err)
		}
	}()
	open := func(cid contract.CID) *ledger.Log {
		l, err := ledger.Open(t.Context(), live.JetStream(), ledger.Options{CID: cid, Head: dir.Computer(cid, "log.head")})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	other := open(b)
	ctx, stop := context.WithCancel(t.Context())
	wrote := make(chan int, 1)
	go func() {
		n := 0
		for ctx.Err() == nil {
			if _, err := other.Append(t.Context(), contract.Draft{Actor: contract.Person(""), Type: "computer.renamed", Data: contract.ComputerRenamed{Name: "still"}}); err != nil {
				t.Error(err)
				break
			}
			n++
		}
		wrote <- n
	}()
	o := recovery.Options{Dir: dir, Driver: "local", Logger: slog.New(slog.DiscardHandler), Only: []contract.CID{a}, Bus: live}
	res, err := recovery.Recover(t.Context(), o)
	stop()
	if n := <-wrote; n == 0 {
		t.Error("the other did not write meanwhile")
	}
	if err != nil || res.Computers[a].Kept != len(left)-1 || res.Computers[a].Lost == 0 || len(res.Computers) != 1 {
		t.Fatalf("%+v, %v", res, err)
	}
	if has, err := live.Serves(t.Context(), a); err != nil || has {
		t.Errorf("the server has the log open before anybody asked: %v, %v", has, err)
	}
	r, err := recovery.FinishAndInspectOne(t.Context(), dir, a)
	if err != nil || len(r.Of(a)) > 0 || len(r.Unfinished) > 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	one := open(a)
	if _, err := one.Append(t.Context(), contract.Draft{Actor: contract.Person(""), Type: "computer.renamed", Data: contract.ComputerRenamed{Name: "again"}}); err != nil {
		t.Fatal(err)
	}
	events, err := one.Read(t.Context(), 0, 100)
	if err != nil || len(events) != len(left)+1 || events[len(left)-1].Type != "log.recovered" {
		t.Fatalf("%d events, %v", len(events), err)
	}
	if err := errors.Join(one.Close(), other.Close()); err != nil {
		t.Fatal(err)
	}
	if strings.Join(strings.Split(stored(t, dir)[a], "\n")[:len(left)-1], "\n") != strings.Join(left[:len(left)-1], "\n") {
		t.Error("the log does not begin with what was left of it")
	}
	if r, err := recovery.Inspect(t.Context(), dir); err != nil || !r.Whole() {
		t.Errorf("in the end: %+v, %v", r, err)
	}
}

// A damaged journal keeps only the computers asleep that it is about, and moves nothing.
// Recovery sets it aside and treats what had been made anew as another copy of the log.
func TestAJournalThatDoesNotHoldTogetherIsSetAside(t *testing.T) {
	a, b := contract.NewCID(), contract.NewCID()
	for _, of := range []contract.CID{"", a} {
		name := "recovering"
		if of != "" {
			name += "." + string(of)
		}
		for _, text := range []string{"", "{", `{"aside":"../out"}`, `{"aside":"aside/x","states":["../../etc"]}`, `{"aside":"aside/x","told":{"` + string(a) + `":"../main"}}`, `{"aside":"aside/x","unheard":1}`,
			"{\"aside\":\"aside/x\"}\nsum 00\n"} {
			dir := fill(t, a, b)
			before := stored(t, dir)
			if of == a && text == "" {
				// The process was killed after the log had been made anew, which was then damaged
				// too.
				streams, err := bus.Streams(dir.Path("nats"))
				if err != nil {
					t.Fatal(err)
				}
				for _, s := range streams {
					if s.Of == a {
						if err := os.CopyFS(dir.Path("nats.new."+string(a), s.Path), os.DirFS(dir.Path("nats", s.Path))); err != nil {
							t.Fatal(err)
						}
					}
				}
				cut(t, dir, a)
			}
			left := stored(t, dir)
			if err := os.WriteFile(dir.Path(name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			r, err := recovery.FinishAndInspect(t.Context(), dir)
			if err != nil {
				t.Fatal(err)
			}
			if r.Usable() != (of != "") || !fault.Is(r.Refusal(a), fault.Damaged) || fault.Is(r.Refusal(b), fault.Damaged) != (of == "") || !strings.Contains(r.Refusal(a).Error(), name) {
				t.Errorf("%s %q: %v and %v", name, text, r.Refusal(a), r.Refusal(b))
			}
			if r.Usable() {
				if err := recovery.Arrange(dir, r); err != nil {
					t.Fatal(err)
				}
				write(t, dir, 1, b)
			}
			if stored(t, dir)[a] != left[a] {
				t.Errorf("%s %q: the log was touched", name, text)
			}
			if _, err := recovery.Recover(t.Context(), recovery.Options{Dir: dir, Driver: "local", Logger: slog.New(slog.DiscardHandler)}); err != nil {
				t.Errorf("%s %q: %v", name, text, err)
			}
			if r := arrange(t, dir); !r.Whole() {
				t.Errorf("%s %q: after it %+v", name, text, r)
			}
			if after := stored(t, dir); !strings.HasPrefix(after[a], before[a]) || !strings.HasPrefix(after[b], before[b]) {
				t.Errorf("%s %q: the logs are %v; they were %v", name, text, after, before)
			}
			if kept, err := filepath.Glob(dir.Path("aside", "*", name)); err != nil || len(kept) != 1 {
				t.Errorf("%s %q is kept as %v (%v)", name, text, kept, err)
			}
		}
	}
}
