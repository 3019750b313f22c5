package workspace_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/workspace"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// leaving is a keeper whose caller is gone when it has answered.
type leaving struct {
	wire.Keeper
	verb *string
	gone *context.CancelFunc
}

func (k leaving) Call(ctx context.Context, verb string, in, out any) error {
	err := k.Keeper.Call(ctx, verb, in, out)
	if verb == *k.verb {
		(*k.gone)()
	}
	return err
}

// TestAPushOfWhoMayNoLonger: a request ends when the client leaves, and when its account is
// taken out or its token revoked. A push of which nothing was decided until then changes
// nothing, however far it has come; one that was decided is carried out.
func TestAPushOfWhoMayNoLonger(t *testing.T) {
	for verb, want := range map[string]string{"tree": "a\n", "prepare": "a\n", "begin": "pushed\n", "apply": "pushed\n"} {
		h := newHost(t)
		var gone context.CancelFunc
		at := ""
		h.wrap = func(k wire.Keeper) wire.Keeper { return leaving{k, &at, &gone} }
		h.restart()
		h.write("workspace/p/f", "a\n")
		before, err := h.Checkpoint(t.Context(), workspace.CheckpointRequest{Kind: contract.CheckpointBefore})
		if err != nil {
			t.Fatal(err)
		}
		o, err := h.Begin(t.Context(), "push-1", before.Commit)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(h.at(o.Upper), "workspace/p/f"), "pushed\n")
		var ctx context.Context
		ctx, gone = context.WithCancel(t.Context())
		defer gone()
		at = verb
		_, err = h.Push(ctx, workspace.PushRequest{ID: "push-1", Overlay: o, Repository: "workspace/p", Message: "Push", By: contract.Person("")})
		decided := want == "pushed\n"
		if decided && err != nil || !decided && !errors.Is(err, context.Canceled) {
			t.Errorf("gone at %s: %v", verb, err)
		}
		if got := h.live("workspace/p/f"); got != want {
			t.Errorf("gone at %s: the computer has %q, want %q", verb, got, want)
		}
	}
}
