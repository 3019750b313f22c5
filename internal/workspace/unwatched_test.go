package workspace_test

import (
	"context"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/workspace"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// blind is a keeper that says why it watches nothing.
type blind struct {
	wire.Keeper
	why *string
}

func (b blind) Call(ctx context.Context, verb string, in, out any) error {
	err := b.Keeper.Call(ctx, verb, in, out)
	if r, ok := out.(*wire.CheckpointReply); ok {
		r.Unwatched = *b.why
	}
	return err
}

// TestWhyNothingIsWatchedIsTold shows that people are told why the tree is not watched until it is
// watched again, and that whatever a box says there becomes one short line.
func TestWhyNothingIsWatchedIsTold(t *testing.T) {
	h := newHost(t)
	if got := h.Unwatched(); got != "" {
		t.Errorf("before anything was scanned it says %q", got)
	}
	h.end()
	var why string
	h.wrap = func(k wire.Keeper) wire.Keeper { return blind{k, &why} }
	h.start()
	for said, want := range map[string]string{"": "", "there are too many": "there are too many", "a\x1b[2Jb\nc": "a [2Jb c", strings.Repeat("x", 9000): strings.Repeat("x", 300)} {
		why = said
		if _, err := h.Checkpoint(t.Context(), workspace.CheckpointRequest{Kind: contract.CheckpointManual}); err != nil {
			t.Fatal(err)
		}
		if got := h.Unwatched(); got != want {
			t.Errorf("%q is told as %q", contract.Clip(said, 40), contract.Clip(got, 400))
		}
	}
}
