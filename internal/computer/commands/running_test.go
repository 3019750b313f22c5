package commands

import (
	"context"
	"testing"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
)

// TestNobodyTakesTheNameOfACommandThatRuns: a desktop can read the ids of its user's other commands
// in the log. If it could start a command with such an id, it would receive the stops and
// interrupts meant for the other one, and take its place in the list.
func TestNobodyTakesTheNameOfACommandThatRuns(t *testing.T) {
	c := New(Options{})
	ctx, brought, unlist, err := c.running.begin(t.Context(), "id", []string{"make"})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, end, err := c.running.begin(t.Context(), "id", []string{"sleep"}); !fault.Is(err, fault.Conflict) {
		t.Errorf("another one has its id: %v", err)
		end()
	}
	if list := c.running.list(); len(list) != 1 || list[0].Line != "make" {
		t.Errorf("listed: %+v", list)
	}
	if err := c.SignalCommand(t.Context(), "id", view.CommandSignal{Signal: "INT"}); err != nil || len(brought) != 1 {
		t.Errorf("what is brought to it: %d, %v", len(brought), err)
	}
	if err := c.StopCommand(t.Context(), "id"); err != nil || context.Cause(ctx) != errStopped {
		t.Errorf("stopped: %v, %v", err, context.Cause(ctx))
	}
	unlist()
	if _, _, end, err := c.running.begin(t.Context(), "id", []string{"make"}); err != nil {
		t.Error(err)
	} else {
		end()
	}
}
