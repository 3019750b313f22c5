package state_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/state"
)

// TestReplaceWhileOpen replaces the state while it is open, written to and read from: damaged rows
// become again what the log says, and no reader sees only a part of them.
func TestReplaceWhileOpen(t *testing.T) {
	l := newLog()
	run, _, _ := story(t, l)
	path := filepath.Join(t.TempDir(), "state.sqlite")
	s := mustOpen(t, path)
	defer s.Close()
	project(t, s, l)
	sabotage(t, path, `UPDATE runs SET status = 'failed'; DELETE FROM tool_calls WHERE call = 'c2';
		INSERT INTO files VALUES ('x', 1, '', '', 1); DROP TABLE citations; DROP INDEX IF EXISTS events_by_subject;
		CREATE TABLE intruder (x); CREATE TRIGGER refuse BEFORE INSERT ON files BEGIN SELECT raise(ABORT, 'refused'); END`)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	projected := make(chan error, 1)
	go func() { projected <- s.Project(ctx, l) }()
	reading, stop := make(chan error, 1), make(chan struct{})
	go func() { // a run may be damaged or whole, but is always there
		for {
			select {
			case <-stop:
				reading <- nil
				return
			default:
			}
			if _, err := s.Run(t.Context(), run); err != nil {
				reading <- err
				return
			}
		}
	}()
	for i := range 5 {
		l.say(t, "computer.renamed", &contract.ComputerRenamed{Name: strings.Repeat("n", i+1)})
		rep, err := s.Replace(t.Context(), l)
		if err != nil || !rep.Swapped || rep.Clean() != (i > 0) {
			t.Fatalf("replacement %d: %+v %v", i, rep, err)
		}
	}
	last := l.say(t, "computer.renamed", &contract.ComputerRenamed{Name: "after"})
	if err := s.Wait(t.Context(), last.Sequence); err != nil {
		t.Errorf("projection does not go on: %v", err)
	}
	close(stop)
	if err := <-reading; err != nil {
		t.Errorf("a reader saw a half state: %v", err)
	}
	if r, err := s.Run(t.Context(), run); err != nil || r.Status != contract.RunDone {
		t.Errorf("the run is %+v, %v", r, err)
	}
	cancel()
	if err := <-projected; err != nil {
		t.Errorf("the projection ended: %v", err)
	}
	if rep, err := state.Check(t.Context(), path, l); err != nil || !rep.Clean() || rep.Seq != l.Last() {
		t.Errorf("after the replacements: %+v %v", rep, err)
	}
	if left, _ := filepath.Glob(path + ".*"); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	undamaged := filepath.Join(t.TempDir(), "state.sqlite")
	other := mustOpen(t, undamaged)
	project(t, other, l)
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if got, want := schemaOf(t, path), schemaOf(t, undamaged); got != want {
		t.Errorf("the schema is\n%s\nwant\n%s", got, want)
	}
}
