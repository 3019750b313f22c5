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

// Looking through the file keeps nobody from writing to it, and it is the file
// that is looked at, not what a connection has read of it before.
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
	// The kind of the page with one of the events, all of which were just read.
	page := bytes.Index(b, []byte("Computer 150")) / 4096 * 4096
	if _, err := f.WriteAt([]byte{0xff}, int64(page)); err != nil {
		t.Fatal(err)
	}
	if text, err := s.QuickCheck(t.Context()); err != nil || text == "" {
		t.Errorf("a damaged file: %q, %v", text, err)
	}
}
