package dispatch_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/ledger"
)

// The scenarios of edges_test.go whose user looks at the work before it is published.
func init() {
	for name, prepare := range map[string]func(h *house){
		"looked at":         looked(take, steps(blue, edit("c1"))),
		"looked at, a part": looked(contract.ReviewAnswered{Decision: contract.ReviewPublish, Only: []contract.Choice{{Path: "workspace/a.sh"}}}, steps(blue, edit("c1"))),
		"looked at, and sent back": func(h *house) {
			looked(revise, steps(blue, edit("c1"), done, repaired))(h)
			h.looks = func(_ *dispatch.Dispatcher, _ *ledger.Log, _ string, r contract.ReviewRequested) contract.ReviewAnswered {
				if r.Review == 1 {
					return revise
				}
				return take
			}
		},
		"looked at, and discarded": looked(discard, steps(blue, edit("c1"))),
		"cancelled while it is looked at": func(h *house) {
			looked(take, steps(blue, edit("c1")))(h)
			h.looks = func(d *dispatch.Dispatcher, l *ledger.Log, run string, _ contract.ReviewRequested) contract.ReviewAnswered {
				for told := false; !told; {
					ctx, cancel := context.WithTimeout(h.t.Context(), time.Second) // nothing waits for a process that died
					_, err := d.Command(ctx, contract.Person("u"), run, contract.CommandCancel)
					cancel()
					events, _ := l.Read(context.Background(), 0, 1000) // it may have been before a death
					told = err == nil || slices.ContainsFunc(events, func(e contract.Event) bool { return e.Type == "run.commanded" })
					select {
					case <-d.Closed():
						told = true
					case <-time.After(5 * time.Millisecond): // until its run is taken up
					}
				}
				return contract.ReviewAnswered{} // no answer
			}
		},
		"looked at, a part that can't be taken any more": func(h *house) {
			looked(take, steps(blue, edit("c1")))(h)
			h.looks = func(_ *dispatch.Dispatcher, _ *ledger.Log, _ string, r contract.ReviewRequested) contract.ReviewAnswered {
				if r.Review == 1 {
					return contract.ReviewAnswered{Decision: contract.ReviewPublish, Only: []contract.Choice{{Path: "workspace/a.sh"}}}
				}
				return take
			}
			h.ws.choose = func() error { return fault.New("choose", fault.Invalid, "", errors.New("not alone")) }
		},
	} {
		scenarios[name] = prepare
	}
}

// looked is a scenario whose user looks at the work before it is published.
func looked(a contract.ReviewAnswered, work func(int, contract.TurnRequest) []contract.Part) func(h *house) {
	return func(h *house) {
		h.model.director, h.model.associate = plan(agentTask), work
		h.tune = func(o *dispatch.Options) { o.Review = true }
		h.looks = func(*dispatch.Dispatcher, *ledger.Log, string, contract.ReviewRequested) contract.ReviewAnswered {
			return a
		}
	}
}

// looking has the user answer each review until the dispatcher has closed: as soon as its run is taken up,
// and unless it was answered before.
func (h *house) looking(d *dispatch.Dispatcher, l *ledger.Log) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	h.t.Cleanup(func() { cancel(); wg.Wait() })
	wg.Go(func() {
		defer cancel()
		select {
		case <-d.Closed():
		case <-ctx.Done():
		}
	})
	wg.Go(func() {
		for e, err := range l.Follow(ctx, 0) {
			if err != nil || e.Type != "review.requested" {
				continue
			}
			asked := *must(l.Payload(ctx, e)).(*contract.ReviewRequested)
			wg.Go(func() {
				a := h.looks(d, l, e.Run, asked)
				a.Attempt, a.Review, a.Work = asked.Attempt, asked.Review, asked.Work
				for a.Decision != "" {
					if _, err := d.Looked(ctx, contract.Person("u"), e.Run, e.Task, a); err == nil || fault.Is(err, fault.Conflict) {
						return
					}
					select {
					case <-ctx.Done():
						return
					case <-time.After(5 * time.Millisecond): // until its run is taken up
					}
				}
			})
		}
	})
}
