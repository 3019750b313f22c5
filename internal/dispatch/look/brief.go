package look

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"choir.dev/choiros/internal/associate/brief"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/harness"
	"choir.dev/choiros/internal/tool"
	"choir.dev/choiros/internal/tool/boxtools"
)

// maxBrief bounds what a loop is told of the tree before its first turn, in bytes.
const maxBrief = 24 << 10

// Briefs tell loops what a good engineer would look up first. The programs of a box are the
// machine's, so they are asked for their versions once.
type Briefs struct {
	Tools interface {
		Lookup(string) (tool.Tool, bool)
	}
	Now func() time.Time

	mu       sync.Mutex
	programs []brief.Program
	known    bool
}

// Text looks with call, which makes one call in a box with the tree, and returns the sections as
// Markdown. What can't be looked at is said, for a loop works without it, too.
func (b *Briefs) Text(ctx context.Context, about string, call func(context.Context, tool.Tool, json.RawMessage) (tool.Result, error)) string {
	got, err := b.gather(ctx, about, call)
	text := harness.Compose(maxBrief, got.Text(b.Now().UTC().Format(time.DateOnly))...)
	if err != nil {
		text += "\n\n(The tree could not be looked at: " + harness.Clip(fault.Text(err), 500) + ".)"
	}
	return text
}

func (b *Briefs) gather(ctx context.Context, about string, call func(context.Context, tool.Tool, json.RawMessage) (tool.Result, error)) (brief.Brief, error) {
	t, ok := b.Tools.Lookup(boxtools.Briefing)
	if !ok || !t.For(tool.Opening) {
		return brief.Brief{}, fault.New("dispatch.brief", fault.Internal, "", errors.New("there is no tool for it"))
	}
	b.mu.Lock()
	known, programs := b.known, b.programs
	b.mu.Unlock()
	args, err := json.Marshal(map[string]any{"about": harness.Clip(about, 16<<10), "programs": !known})
	if err != nil {
		return brief.Brief{}, err
	}
	res, err := call(ctx, t, args)
	if err != nil {
		return brief.Brief{}, err
	}
	if !res.OK {
		return brief.Brief{}, errors.New(res.Output)
	}
	var got brief.Brief
	// It comes from a box with the tree.
	if err := json.Unmarshal(res.Data, &got); err != nil {
		return brief.Brief{}, fmt.Errorf("the box's answer: %w", err)
	}
	if err := got.Check(); err != nil {
		return brief.Brief{}, err
	}
	if known {
		got.Programs = programs
		return got, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.known && len(got.Programs) > 0 {
		b.programs, b.known = got.Programs, true
	}
	return got, nil
}
