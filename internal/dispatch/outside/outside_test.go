package outside_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch/catalogue"
	"choir.dev/choiros/internal/dispatch/outside"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/run"
	"choir.dev/choiros/internal/tool"
)

// lagging is a run whose story is behind its log: whoever is about to end an effect does not see that another has.
type lagging struct {
	story *run.Run
	ready sync.WaitGroup // until all have looked

	mu    sync.Mutex
	last  map[string]uint64 // by subject, as the log has it
	ended int
}

func (l *lagging) Story(look func(*run.Run)) { look(l.story) }

func (l *lagging) Append(_ context.Context, drafts ...contract.Draft) ([]contract.Event, error) {
	l.ready.Done()
	l.ready.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range drafts {
		if d.Expect != nil && d.Expect.Last != l.last[d.Subject] {
			return nil, fault.New("", fault.Conflict, "", errors.New("it is not the newest any more"))
		}
		l.last[d.Subject] += 10
		l.ended++
	}
	return nil, nil
}

// TestTheFirstEndCounts: of several that end one effect at the same moment one does, and the others have nothing to do.
func TestTheFirstEndCounts(t *testing.T) {
	const several = 8
	id, task := contract.NewID(), contract.NewID()
	l := &lagging{story: run.New(contract.NewID()), last: map[string]uint64{contract.EffectSubject(id): 7}}
	l.story.Apply(contract.Event{Sequence: 7, Task: task, Time: time.Unix(1, 0)}, &contract.EffectIntended{Effect: id, Kind: contract.EffectMCP, Target: "shop order", Call: "c", Attempt: 1})
	l.ready.Add(several)
	var all sync.WaitGroup
	for range several {
		all.Go(func() {
			if err := outside.End(t.Context(), l, task, "nobody waits for it"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if l.ended != 1 {
		t.Errorf("it ended %d times", l.ended)
	}
}

// known is a run whose story has what was appended.
type known struct {
	story *run.Run
	types []string
}

func (k *known) Story(look func(*run.Run)) { look(k.story) }

func (k *known) Append(_ context.Context, drafts ...contract.Draft) ([]contract.Event, error) {
	for _, d := range drafts {
		k.types = append(k.types, d.Type)
		k.story.Apply(contract.Event{Sequence: k.story.Last + 1, Task: d.Task, Time: time.Unix(1, 0)}, d.Data)
	}
	return nil, nil
}

// small is a store that takes little.
type small struct{ ports.Blobs }

func (small) Put(_ context.Context, _ contract.CID, r io.Reader) (contract.BlobRef, int64, error) {
	b, err := io.ReadAll(r)
	if len(b) > 100 {
		return "", 0, fault.New("", fault.DiskFull, "", errors.New("the disk is full"))
	}
	return contract.NewBlobRef(sha256.Sum256(b)), int64(len(b)), err
}

// TestAnAnswerThatCantBeKeptIsOne: where there is no room for the whole of an answer, the effect is done all the same.
func TestAnAnswerThatCantBeKeptIsOne(t *testing.T) {
	k := &known{story: run.New(contract.NewID())}
	m := outside.Maker{Run: k, Ref: ports.TaskRef{Run: k.story.ID, Task: contract.NewID(), Attempt: 1}, Blobs: small{}, Lock: new(outside.Lock),
		CleanUp: func() (context.Context, context.CancelFunc) { return context.WithCancel(t.Context()) }}
	res, err := m.Make(t.Context(), "c", catalogue.Outside{Kind: contract.EffectMCP, Target: "shop order"}, json.RawMessage(`{"what":"it"}`), func(context.Context, json.RawMessage) (tool.Result, error) {
		return tool.Result{OK: true, Output: strings.Repeat("ordered ", 500)}.End(contract.EffectDone), nil
	})
	if err != nil || !res.OK {
		t.Fatalf("%v %+v", err, res)
	}
	if e := k.story.Effects; len(e) != 1 || e[0].Outcome() != contract.EffectDone || e[0].Ended.Answer != "" || !strings.HasPrefix(e[0].Ended.Detail, "(the rest could not be kept: the disk is full) ordered") || e[0].Ended.Validate() != nil {
		t.Errorf("%v %+v", k.types, e[0].Ended)
	}
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{"a\nb\tc": "a b c", "\x1b[31mred": "[31mred", "left\u202eright": "leftright", "\xff": "\uFFFD", "longer than it may be": "longer t…"} {
		if got := outside.Printable(in, 11); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}
