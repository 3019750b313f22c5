package state_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"choir.dev/choiros/contract"
)

// TestQuickCheckIsInNobodysWay shows that checking the file does not prevent writing to it, and
// that the check reads the file rather than pages that a connection has cached.
func TestQuickCheckIsInNobodysWay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.sqlite")
	s, log := mustOpen(t, path), newLog()
	var looking sync.WaitGroup
	stop := make(chan struct{})
	for range 6 { // more than there are connections for readers
		looking.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if text, err := s.QuickCheck(t.Context()); err != nil || text != "" {
					t.Errorf("a whole file: %q, %v", text, err)
					return
				}
			}
		})
	}
	for i := range 200 {
		e := log.add(contract.Event{Type: "computer.renamed", Data: []byte(fmt.Sprintf(`{"name":"Computer %d"}`, i))})
		if err := s.Apply(t.Context(), []contract.Event{e}); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	looking.Wait()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, path)
	for range 4 {
		if _, err := s.EventsAfter(t.Context(), 0, 1000); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	// This is a byte in the page's header, of a page with one of the events, all of which were just
	// read.
	page := bytes.Index(b, []byte("Computer 150")) / 4096 * 4096
	if _, err := f.WriteAt([]byte{0xff}, int64(page)); err != nil {
		t.Fatal(err)
	}
	if text, err := s.QuickCheck(t.Context()); err != nil || text == "" {
		t.Errorf("a damaged file: %q, %v", text, err)
	}
}
