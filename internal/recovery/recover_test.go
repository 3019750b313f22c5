package recovery_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/recovery"
)

// Of two damaged logs the one that was named is made anew, and the other is left
// as it was found; all are recovered where no one is named.
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

// A recovery that finds the journal of one before in pieces says so and moves
// nothing.
func TestAJournalThatDoesNotHoldTogetherIsRefused(t *testing.T) {
	a := contract.NewCID()
	for _, text := range []string{"", "{", `{"aside":"../out"}`, `{"aside":"aside/x","states":["../../etc"]}`, `{"aside":"aside/x","branches":{"` + string(a) + `":"../main"}}`} {
		dir := fill(t, a)
		if err := os.WriteFile(dir.Path("recovering"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		before := stored(t, dir)[a]
		if _, err := recovery.Recover(t.Context(), recovery.Options{Dir: dir, Driver: "local", Logger: slog.New(slog.DiscardHandler)}); err == nil {
			t.Errorf("with the journal %q it went on", text)
		}
		if stored(t, dir)[a] != before {
			t.Errorf("with the journal %q the log was touched", text)
		}
		if _, err := os.Lstat(dir.Path("nats")); err != nil {
			t.Error(err)
		}
	}
}
