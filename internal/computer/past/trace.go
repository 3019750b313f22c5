package past

import (
	"context"
	"fmt"

	"choir.dev/choiros/internal/blob"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/trace"
	"choir.dev/choiros/internal/view"
)

// Trace answers rpc.RunTrace: the spans of a run, from the same events that rpc.RunGet answers with. An
// event whose data are lost adds nothing.
func (c *Past) Trace(ctx context.Context, run string) (view.Trace, error) {
	t := trace.New(c.cid, run)
	q := view.EventQuery{Run: run, Types: trace.Types()}
	for more := true; more; {
		page, err := c.Events(ctx, q)
		if err != nil {
			return view.Trace{}, err
		}
		for _, e := range page.Events {
			p, err := c.log.Payload(ctx, e)
			if blob.Gone(err) || fault.Is(err, fault.Invalid) {
				continue
			}
			if err != nil {
				return view.Trace{}, err
			}
			t.Apply(e, p)
		}
		q.After, more = page.Next, page.More
	}
	if !t.Known() {
		return view.Trace{}, fault.New("past.Trace", fault.NotFound, "List runs with: choir runs", fmt.Errorf("there is no run %s", run))
	}
	return t.Trace(), nil
}
