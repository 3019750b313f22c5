package dispatch_test

import (
	"slices"
	"sync"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch/ports"
)

// TestWhatFollowsAtOnceIsAppendedTogether shows which of a run's events are one call of the log,
// and so one sync: those that follow from what is known, without anything being done in between.
func TestWhatFollowsAtOnceIsAppendedTogether(t *testing.T) {
	moved := func(s contract.AttemptState) string { return "attempt.moved " + string(s) }
	verified := func(next contract.AttemptState) []string {
		return []string{moved(contract.AttemptVerified), "verification.finished", moved(next)}
	}
	common := [][]string{
		{"run.started", "run.moved " + string(contract.RunPlanning)},
		{"task.requested", "run.moved " + string(contract.RunWorking)},
		{moved(contract.AttemptMerged), moved(contract.AttemptVerifying)},
	}
	for name, follows := range map[string]contract.AttemptState{"good": contract.AttemptPublishing, "failed check": contract.AttemptTakingBack} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			scenarios[name](h)
			var mu sync.Mutex
			var calls [][]string
			h.sleep()
			h.wrap = func(real ports.Log) ports.Log {
				return &slowLog{real, func(drafts []contract.Draft) {
					var call []string
					for _, d := range drafts {
						switch p := d.Data.(type) {
						case *contract.AttemptMoved:
							call = append(call, moved(p.State))
						case *contract.RunMoved:
							call = append(call, "run.moved "+string(p.Status))
						default:
							call = append(call, d.Type)
						}
					}
					mu.Lock()
					defer mu.Unlock()
					calls = append(calls, call)
				}}
			}
			h.wake()
			h.report(h.submit("go"))
			h.quiet()
			mu.Lock()
			defer mu.Unlock()
			for _, want := range append(slices.Clone(common), verified(follows)) {
				if !slices.ContainsFunc(calls, func(call []string) bool { return slices.Equal(call, want) }) {
					t.Errorf("no call of the log has just %q:\n%q", want, calls)
				}
			}
		})
	}
}
