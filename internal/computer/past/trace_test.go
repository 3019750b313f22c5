package past

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/trace"
	"choir.dev/choiros/internal/view"
)

// TestALongTraceIsReadInPieces shows that a desktop has every span of the longest trace that there is, in order and
// once, though no answer on the bus is longer than it may be, and that a span leads to the events that it was made of.
func TestALongTraceIsReadInPieces(t *testing.T) {
	c, _ := open(t)
	run, task := contract.NewID(), contract.NewID()
	drafts := []contract.Draft{{Actor: contract.System(), Type: "run.started", Run: run, Data: contract.RunStarted{Document: contract.NewID(), Provider: "p", Model: "m"}}}
	for i := range trace.MaxSpans {
		call := fmt.Sprint("call-", i)
		drafts = append(drafts,
			contract.Draft{Actor: contract.AssociateOf(task), Type: "tool.called", Run: run, Task: task, Data: contract.ToolCalled{Call: call, Name: "bash", Args: json.RawMessage(`{}`), Attempt: 1}},
			contract.Draft{Actor: contract.AssociateOf(task), Type: "tool.returned", Run: run, Task: task, Data: contract.ToolReturned{Call: call, Name: "bash", OK: true, Attempt: 1}})
	}
	for some := range slices.Chunk(drafts, 400) {
		if _, err := c.log.Append(t.Context(), some...); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.state.Recover(t.Context(), c.log); err != nil {
		t.Fatal(err)
	}
	whole, err := c.Trace(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	table := rpc.Table{}
	c.Bind(table)
	desktop := rpc.Caller{Computer: c.cid, Actor: contract.DesktopOf("u")}
	var got []view.Span
	for more, asked := true, 0; more; asked++ {
		if len(got) > len(whole.Spans) {
			t.Fatalf("%d spans of %d, and there are more", len(got), len(whole.Spans))
		}
		b, err := rpc.RunTrace.Answer(t.Context(), table, desktop, fmt.Appendf(nil, `{"run":%q,"after":%d}`, run, len(got)))
		if err != nil {
			t.Fatal(err)
		}
		var page view.Trace
		if err := json.Unmarshal(b, &page); err != nil || len(b) > rpc.MaxBusAnswer || page.Dropped != whole.Dropped || asked == 0 && !page.More {
			t.Fatalf("%d bytes with %d spans, %d dropped, more: %v, %v", len(b), len(page.Spans), page.Dropped, page.More, err)
		}
		got, more = append(got, page.Spans...), page.More
	}
	if !slices.EqualFunc(got, whole.Spans, func(a, b view.Span) bool { return a.ID == b.ID && a.From == b.From && a.To == b.To }) {
		t.Errorf("%d spans of %d, or others", len(got), len(whole.Spans))
	}
	last := got[len(got)-1]
	events, err := c.Events(t.Context(), view.EventQuery{Run: run, After: last.From - 1, Limit: 2})
	if err != nil || len(events.Events) != 2 || events.Events[0].Type != "tool.called" || events.Events[1].Sequence != last.To {
		t.Errorf("%s is from event %d to %d: %v, %v", last.Name, last.From, last.To, events.Events, err)
	}
	if _, err := rpc.RunTrace.Answer(t.Context(), table, desktop, fmt.Appendf(nil, `{"run":%q,"after":-1}`, run)); err == nil {
		t.Error("spans before the first are asked for")
	}
}
