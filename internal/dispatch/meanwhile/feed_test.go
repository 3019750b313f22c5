package meanwhile_test

import (
	"context"
	"testing"

	"pgregory.net/rapid"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch/meanwhile"
	"choir.dev/choiros/internal/fault"
)

// counted is a log that counts what is read of it.
type counted struct {
	*story
	reads, payloads int
}

func (c *counted) Read(ctx context.Context, after uint64, limit int) ([]contract.Event, error) {
	c.reads++
	return c.story.Read(ctx, after, limit)
}

func (c *counted) Payload(ctx context.Context, e contract.Event) (contract.Payload, error) {
	c.payloads++
	return c.story.Payload(ctx, e)
}

// TestAFeedHasWhatItsLogHas: however its followers come, go and lag, whoever reads a feed from anywhere is given what the log has of events
// that may say that live files changed.
func TestAFeedHasWhatItsLogHas(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		s := &story{t: t}
		f := meanwhile.NewFeed(s, nil)
		followers := make([]uint64, 3)
		r.Repeat(map[string]func(*rapid.T){
			"append": func(r *rapid.T) {
				for range rapid.IntRange(1, 1500).Draw(r, "n") {
					if rapid.Bool().Draw(r, "tells") {
						s.put("a", "")
					} else {
						s.add("run.moved", "", "", nil)
					}
				}
			},
			"follow": func(r *rapid.T) {
				who := rapid.IntRange(0, 2).Draw(r, "who")
				for range rapid.IntRange(1, 2500).Draw(r, "n") {
					if at := followers[who]; at < uint64(len(s.events)) {
						f.Add(at, s.events[at])
						followers[who]++
					}
				}
			},
			"begin anew at the end": func(r *rapid.T) {
				followers[rapid.IntRange(0, 2).Draw(r, "who")] = uint64(len(s.events))
				f.Begin(uint64(len(s.events)))
			},
			"end": func(*rapid.T) {
				f.Forget()
				for who := range followers {
					followers[who] = uint64(len(s.events))
					f.Begin(followers[who])
				}
			},
			"": func(r *rapid.T) {
				at := uint64(rapid.IntRange(0, len(s.events)).Draw(r, "from"))
				// A reader reads as far as some follower has come.
				upTo := max(followers[0], followers[1], followers[2])
				var want, got []uint64
				for _, e := range s.events[min(at, upTo):upTo] {
					if meanwhile.Tells(e.Type) {
						want = append(want, e.Sequence)
					}
				}
				for at < upTo {
					page, err := f.Read(t.Context(), at, upTo, 500)
					if err != nil {
						r.Fatal(err)
					}
					if len(page) == 0 {
						break
					}
					for _, e := range page {
						if at = e.Sequence; meanwhile.Tells(e.Type) && at <= upTo {
							got = append(got, at)
						}
					}
				}
				if len(got) != len(want) {
					r.Fatalf("%d events are read, want %d", len(got), len(want))
				}
				for i := range got {
					if got[i] != want[i] {
						r.Fatalf("event %d is read where %d is wanted", got[i], want[i])
					}
				}
			},
		})
	})
}

// TestAHundredLoopsReadOnce: what is read and compared for one loop is not read and compared again for the others.
func TestAHundredLoopsReadOnce(t *testing.T) {
	t.Parallel()
	s := &story{t: t}
	c := &counted{story: s}
	compared := 0
	f := meanwhile.NewFeed(c, func(context.Context, string, string) ([]contract.Change, error) {
		compared++
		return []contract.Change{{Path: "a", Op: contract.ChangeModified}}, nil
	})
	f.Begin(1)
	s.add("run.started", "", "", nil)
	for range 30 {
		s.put("a", "")
	}
	s.add("document.revised", "/computers/c/system", "", &contract.DocumentRevised{Path: "artifacts/d.md", Body: "long"})
	s.checkpoint("one", "base")
	for i, e := range s.events[1:] {
		f.Add(uint64(i+1), e)
	}
	for range 100 {
		events, err := f.Read(t.Context(), 1, 33, 500)
		if err != nil || len(events) != 32 {
			t.Fatal(len(events), err)
		}
		for _, e := range events {
			p, err := f.Payload(t.Context(), e)
			if err != nil {
				t.Fatal(err)
			}
			if d, ok := p.(*contract.DocumentRevised); ok && d.Body != "" {
				t.Error("a document's text is kept")
			}
		}
		if changes, err := f.Changed(t.Context(), "base", "one"); err != nil || len(changes) != 1 {
			t.Fatal(changes, err)
		}
	}
	if c.reads != 32 || c.payloads != 32 || compared != 1 { // each event once
		t.Errorf("the log was read %d times, %d events were decoded, and a checkpoint was compared %d times", c.reads, c.payloads, compared)
	}
}

// TestACheckpointThatIsGoneChangesNothing: one that can't be compared any more tells nothing, one that can't now is compared the next time.
func TestACheckpointThatIsGoneChangesNothing(t *testing.T) {
	t.Parallel()
	answer := fault.New("diff", fault.Unavailable, "", nil)
	f := meanwhile.NewFeed(&story{t: t}, func(context.Context, string, string) ([]contract.Change, error) { return nil, answer })
	if _, err := f.Changed(t.Context(), "a", "b"); !fault.Is(err, fault.Unavailable) {
		t.Error(err)
	}
	answer = fault.New("diff", fault.NotFound, "", nil)
	if changes, err := f.Changed(t.Context(), "a", "b"); err != nil || len(changes) != 0 {
		t.Error(changes, err)
	}
}
