package state_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/state"
)

func TestStockShellOpensIt(t *testing.T) {
	sqlite, err := exec.LookPath("sqlite3")
	if err != nil {
		t.Fatal("this test needs the sqlite3 shell (Debian: apt-get install sqlite3)")
	}
	l := newLog()
	story(t, l)
	path := filepath.Join(t.TempDir(), "state.sqlite")
	s := mustOpen(t, path)
	project(t, s, l)
	const script = "PRAGMA integrity_check; PRAGMA foreign_key_check; SELECT count(*) FROM events; SELECT status FROM runs; " +
		"INSERT INTO chunks VALUES ('hello world', 's', 1); SELECT source FROM chunks WHERE chunks MATCH 'hello'; DELETE FROM chunks;"
	shell := func(when string) {
		out, err := exec.Command(sqlite, path, script).CombinedOutput()
		if want := "ok\n23\ndone\ns\n"; err != nil || string(out) != want {
			t.Errorf("%s the shell says %q, want %q (%v)", when, out, want, err)
		}
	}
	shell("while it is open")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	shell("once it is closed")
}

// TestManyLargeEvents shows that the data in memory are bounded: what does not fit into one
// transaction is applied in two.
func TestManyLargeEvents(t *testing.T) {
	l, blobs := newLog(), memBlobs{}
	body := strings.Repeat("0123456789abcdef", 4<<20/16)
	for range 6 {
		doc := contract.NewID()
		data, err := contract.EncodeData("document.revised", &contract.DocumentRevised{Document: doc, Title: "T", Path: "artifacts/t.md", Revision: 1, Author: "me", SHA256: blobRef(body), Body: body})
		if err != nil {
			t.Fatal(err)
		}
		blobs[blobRef(string(data))] = string(data)
		l.add(contract.Event{Type: "document.revised", DataRef: blobRef(string(data)), Subject: doc})
	}
	s := newStore(t, state.WithBlobs(blobs))
	events, err := l.Read(t.Context(), 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Apply(t.Context(), events); err != nil {
		t.Fatal(err)
	}
	if docs, err := s.Documents(t.Context(), 0); err != nil || len(docs) != 6 || s.Last() != 6 {
		t.Errorf("%d documents at %d, %v", len(docs), s.Last(), err)
	}
}
