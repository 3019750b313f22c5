package state

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
)

// TestQuestionsAreParsedOnce shows that a query that was made before is prepared, for many callers
// at once, and that a query is answered even if there is no room to keep it prepared.
func TestQuestionsAreParsedOnce(t *testing.T) {
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "state.sqlite"))
	if err != nil {
		t.Fatal(err)
	}
	ask := func(query string, want int) error {
		var got int
		if err := s.row(t.Context(), query, []any{want}, &got); err != nil || got != want {
			return fmt.Errorf("%s: %d, %w", query, got, err)
		}
		return nil
	}
	var g sync.WaitGroup
	for i := range 8 {
		g.Go(func() {
			for range 50 {
				if err := ask("SELECT ?", i); err != nil {
					t.Error(err)
				}
			}
		})
	}
	g.Wait()
	if n := len(s.reads.by); n != 1 {
		t.Errorf("%d questions are ready", n)
	}
	for i := range maxReads + 10 {
		if err := ask(fmt.Sprintf("SELECT ? -- %d", i), i); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.reads.by); n != maxReads {
		t.Errorf("%d questions are ready; at most %d are kept", n, maxReads)
	}
	var none int
	if err := s.row(t.Context(), "SELECT seq FROM events WHERE seq = ?", []any{1}, &none); !errors.Is(err, sql.ErrNoRows) {
		t.Errorf("of an event that is not there: %v", err)
	}
	if err := s.row(t.Context(), "SELECT nothing FROM ?", []any{1}, &none); err == nil {
		t.Error("nonsense was answered")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.row(ended, "SELECT ?", []any{1}, &none); !errors.Is(err, context.Canceled) {
		t.Errorf("asked after its end: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
