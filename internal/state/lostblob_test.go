package state_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/blob"
	"choir.dev/choiros/internal/blob/disk"
	"choir.dev/choiros/internal/state"
)

// TestALostBlobCostsItsEventOnly shows that an event whose data can't be read, for whatever reason,
// is kept with the reason, and that the events after it are projected.
func TestALostBlobCostsItsEventOnly(t *testing.T) {
	dir := t.TempDir()
	blobs, err := disk.Open(dir, blob.Quota{})
	if err != nil {
		t.Fatal(err)
	}
	harm := map[string]func(file string) error{
		"it is gone":   func(string) error { return nil },
		"it is cut":    func(file string) error { return os.WriteFile(file, nil, 0o600) },
		"it is other":  func(file string) error { return os.WriteFile(file, []byte(`{"other":1}`), 0o600) },
		"it is a tree": func(file string) error { return os.Mkdir(file, 0o700) },
		"it is a loop": func(file string) error { return os.Symlink(filepath.Base(file), file) },
	}
	l := newLog()
	add := func(body string, f func(string) error) (doc string) {
		doc = contract.NewID()
		data, err := contract.EncodeData("document.revised", &contract.DocumentRevised{Document: doc, Title: "T", Path: "artifacts/t.md", Revision: 1, Author: "me", SHA256: blobRef(body), Body: body})
		if err != nil {
			t.Fatal(err)
		}
		ref, _, err := blobs.Put(t.Context(), cid, strings.NewReader(string(data)))
		if err != nil {
			t.Fatal(err)
		}
		l.add(contract.Event{Type: "document.revised", DataRef: ref, Subject: doc, Source: contract.OriginOfClients(cid)})
		if f == nil {
			return doc
		}
		file := filepath.Join(dir, string(cid), ref.Hex()[:2], ref.Hex())
		if err := errors.Join(os.Remove(file), f(file)); err != nil {
			t.Fatal(err)
		}
		return doc
	}
	for name, f := range harm {
		add(name, f)
	}
	whole := add("whole", nil)
	s := newStore(t, state.WithBlobs(blobs))
	project(t, s, l)
	if d, err := s.Document(t.Context(), whole); err != nil || d.Body != "whole" {
		t.Errorf("the document behind them is %q, %v", d.Body, err)
	}
	if bad, err := s.Poison(t.Context(), 0); err != nil || len(bad) != len(harm) {
		t.Errorf("%d of %d events are kept with a reason (%v): %+v", len(bad), len(harm), err, bad)
	}
}
