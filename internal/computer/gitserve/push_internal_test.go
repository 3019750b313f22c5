package gitserve

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/document/mirror"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/internal/workspace"
)

// takenOut is a workspace to which a push comes whose request ends just then, as it does when
// its account is taken out of the computer.
type takenOut struct {
	Workspace
	end     context.CancelFunc
	decided bool // before that
}

func (w takenOut) Push(ctx context.Context, _ workspace.PushRequest) (workspace.Published, error) {
	w.end()
	if w.decided {
		return workspace.Published{ID: "p", Commit: "c"}, nil
	}
	return workspace.Published{}, ctx.Err()
}

// TestAPushEndsWithTheRightToIt: what publishes a push hears that its request has ended; what
// was published by then has its event.
func TestAPushEndsWithTheRightToIt(t *testing.T) {
	store, err := state.Open(t.Context(), filepath.Join(t.TempDir(), "state.sqlite"))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close() // nothing is written
	files, err := mirror.New(t.Context(), mirror.Options{State: store, Busy: func() bool { return false }})
	if err != nil {
		t.Fatal(err)
	}
	ordered := &pushCommands{can: []string{"report-status"}, refs: []contract.PushedRef{{Name: mainBranch}}}
	said := []byte(line("unpack ok\n") + line("ok "+mainBranch+"\n") + "0000")
	for _, decided := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		events := 0
		s := New(Options{Workspace: takenOut{end: cancel, decided: decided}, Mirror: files, Changed: func() {}, Append: func(ctx context.Context, drafts ...contract.Draft) ([]contract.Event, error) {
			events += len(drafts)
			return nil, ctx.Err()
		}})
		err := s.publishAndRecord(ctx, view.GitCall{By: contract.Person("")}, workspace.PushRequest{ID: "push-1"}, ordered, said, newPushReply(&bytes.Buffer{}, ordered))
		if decided && (err != nil || events != 1) {
			t.Errorf("what was published has %d events: %v", events, err)
		}
		if !decided && (!errors.Is(err, context.Canceled) || events != 0) {
			t.Errorf("the publish of a request that has ended: %v, %d events", err, events)
		}
	}
}
