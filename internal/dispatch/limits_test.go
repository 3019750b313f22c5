package dispatch_test

import (
	"context"
	"errors"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/fault"
)

// usedUp opens boxes of tasks that end because they have used up what they may use.
type usedUp struct{ *boxes }

func (u usedUp) Open(ctx context.Context, r ports.BoxRequest) (ports.Box, error) {
	b, err := u.boxes.Open(ctx, r)
	if err == nil && r.Kind == contract.BoxTask {
		return limited{b}, nil
	}
	return b, err
}

type limited struct{ ports.Box }

func (limited) Err() error {
	return fault.New("", fault.Exhausted, "", errors.New("its memory is used up"))
}

// TestABoxThatUsedUpItsLimitsIsReplaced shows that a loop whose task's box ends by a limit goes on in another, whatever its
// kind, while fixed steps, which would use it up again, are not repeated.
func TestABoxThatUsedUpItsLimitsIsReplaced(t *testing.T) {
	for _, c := range []struct {
		name   string
		dies   string
		task   m
		works  []contract.Part
		opened int
		status contract.ResultStatus
	}{
		{"agent", "write", m{"kind": "agent", "goal": "g", "tools": []string{"write"}}, []contract.Part{writes("c0", onCheese, "# Cheese\n")}, 2, contract.ResultOK},
		{"write", "write", m{"kind": "write", "goal": "g", "document": onCheese, "tools": []string{"read"}}, []contract.Part{writes("c0", onCheese, "# Cheese\n")}, 2, contract.ResultOK},
		{"inspect", "ls", m{"kind": "inspect", "goal": "g", "tools": []string{"ls"}}, []contract.Part{use("c0", "ls", m{"path": "."})}, 2, contract.ResultOK},
		{"exec", "run", m{"kind": "exec", "goal": "g", "steps": []m{{"run": m{"argv": []string{"true"}}}}}, nil, 1, contract.ResultFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHouse(t)
			h.sleep()
			opened := 0
			h.tune = func(o *dispatch.Options) { o.Boxes = usedUp{h.boxes} }
			h.wake()
			h.boxes.dies = c.dies
			h.boxes.break_ = func(r ports.BoxRequest) error {
				if r.Kind == contract.BoxTask && r.Task != "" {
					if opened++; opened > 1 {
						h.boxes.dies = ""
					}
				}
				return nil
			}
			h.model.director, h.model.associate = plan(c.task), steps(c.works...)
			h.report(h.submit("go"))
			h.quiet()
			res := h.results()
			if last := res[len(res)-1]; last.Status != c.status || opened != c.opened {
				t.Errorf("%s, in %d boxes: %s; first: %s", last.Status, opened, last.Summary, res[0].Summary)
			}
		})
	}
}
