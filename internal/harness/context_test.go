package harness_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/harness"
)

// work is a model that makes calls until turn n, and sums up with summary when it is asked to.
func work(n int, summary string) func(http.ResponseWriter, *http.Request, contract.TurnRequest) {
	turn := 0
	return func(w http.ResponseWriter, r *http.Request, q contract.TurnRequest) {
		if asksToSumUp(q) {
			say(contract.Part{Text: summary})(w, r, q)
			return
		}
		if turn++; turn > n {
			say(use("end", "end", `{"text":"x"}`))(w, r, q)
			return
		}
		say(contract.Part{Text: fmt.Sprintf("Turn %d.", turn)}, use(fmt.Sprintf("c%d", turn), "touch", fmt.Sprintf(`{"text":"file-%d"}`, turn)))(w, r, q)
	}
}

func asksToSumUp(q contract.TurnRequest) bool {
	last := q.Messages[len(q.Messages)-1]
	return strings.Contains(last.Parts[len(last.Parts)-1].Text, "Use exactly these sections")
}

func flat(t *testing.T, q contract.TurnRequest) string {
	t.Helper()
	b, err := json.Marshal(q.Messages)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// begins reports how much of the shorter of two texts they have in common from the beginning.
func begins(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// TestARequestDiffersOnlyAtItsEnd: what was said is never rewritten, so that services keep it.
func TestARequestDiffersOnlyAtItsEnd(t *testing.T) {
	w := newWire(t, work(60, ""))
	b := &bench{out: func(c contract.ToolCall) string { return strings.Repeat("o", 700) }}
	o := options(w, b)
	o.Limits.Context = 1 << 20
	o.Budget = contract.Budget{ToolCalls: 100, Tokens: 100_000, WallS: 3600}
	said := 0
	o.News = func(context.Context) ([]string, error) {
		said++
		return []string{fmt.Sprintf("The user says (%d): word", said/7+1)}, nil
	}
	o.Tools = endless{b}
	if out := run(t, o); out.Reason != harness.Finished || out.Turns != 61 {
		t.Fatalf("%+v", out)
	}
	sent, same := 0, 0
	for i := 1; i < len(w.reqs); i++ {
		before, after := flat(t, w.reqs[i-1]), flat(t, w.reqs[i])
		// The one before ends in the brackets of its last message, which may have got further parts.
		if n := begins(before, after); n < len(before)-len(`]}]`) {
			t.Fatalf("request %d differs from the one before at byte %d of %d: …%s", i, n, len(before), before[n:])
		}
		sent, same = sent+len(after), same+len(before)
	}
	if same*100 < sent*90 {
		t.Errorf("%d of %d bytes of all requests were those of the request before", same, sent)
	}
}

// TestAResumedLoopAsksAsTheOneBefore: with what was recorded, another process makes the very request that this one would
// have made next.
func TestAResumedLoopAsksAsTheOneBefore(t *testing.T) {
	for _, limit := range []int{1 << 20, 24 << 10} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			var records []contract.TurnRecorded
			var until [][]contract.TurnRecorded // what was recorded when request i was made
			w := newWire(t, work(40, "I was at it."))
			b := &bench{out: func(c contract.ToolCall) string { return "output of " + string(c.Args) + strings.Repeat(".", 700) }}
			set := func(o *harness.Options) {
				o.Limits.Context = limit
				o.Tools = endless{b}
				o.News = func(context.Context) ([]string, error) { return []string{"The user says (1): gently"}, nil }
				o.Facts = func(context.Context, int) (string, error) { return "changed: file-1", nil }
			}
			o := options(w, b)
			set(&o)
			o.Record = func(_ context.Context, r harness.Record) error { records = append(records, r.Recorded()); return nil }
			o.Model = asked{o.Model, func() { until = append(until, append([]contract.TurnRecorded(nil), records...)) }}
			if out := run(t, o); out.Reason != harness.Finished {
				t.Fatalf("%+v", out)
			}
			for i, had := range until {
				if i == 0 || asksToSumUp(w.reqs[i]) {
					continue // the summary of a loop that ended before it recorded it is asked for again
				}
				second := newWire(t, say(use("z", "end", `{"text":"x"}`)))
				again := options(second, &bench{})
				set(&again)
				again.History = harness.History(had)
				run(t, again)
				if got, want := second.reqs[0].Messages, w.reqs[i].Messages; !reflect.DeepEqual(got, want) {
					t.Fatalf("request %d was\n%s\nand is, resumed,\n%s", i, flat(t, w.reqs[i]), flat(t, second.reqs[0]))
				}
			}
		})
	}
}

// asked calls before each turn of a model.
type asked struct {
	harness.Model
	before func()
}

func (a asked) Turn(ctx context.Context, q contract.TurnRequest, onDelta func(string)) (contract.Turn, error) {
	a.before()
	return a.Model.Turn(ctx, q, onDelta)
}

// TestTheThreadIsKept: with a summariser that writes nothing useful, a late request still holds what the log knows.
func TestTheThreadIsKept(t *testing.T) {
	for _, summary := range []string{"", "I did things.", strings.Repeat("useless ", 20_000)} {
		w := newWire(t, work(80, summary))
		b := &bench{out: func(c contract.ToolCall) string { return "did " + string(c.Args) + strings.Repeat(".", 1500) }}
		o := options(w, b)
		o.Limits.Context = 48 << 10
		o.Tools = endless{b}
		o.Facts = func(_ context.Context, most int) (string, error) {
			return harness.Clip("changed file-3 [c3], ran go test ./... → exit code 1: undefined: Frob", most), nil
		}
		if out := run(t, o); out.Reason != harness.Finished {
			t.Fatalf("%+v", out)
		}
		compactions := 0
		for i, q := range w.reqs {
			size := len(q.System)
			for _, m := range q.Messages {
				size += len(flat(t, contract.TurnRequest{Messages: []contract.Message{m}}))
			}
			if size > o.Limits.Context*5/4 {
				t.Errorf("request %d has %d bytes", i, size)
			}
			if asksToSumUp(q) {
				compactions++
			}
		}
		if compactions < 2 {
			t.Fatalf("%d compactions", compactions)
		}
		last := flat(t, w.reqs[len(w.reqs)-1])
		for _, want := range []string{"the goal", "file-3 [c3]", "go test ./...", "undefined: Frob", "file-80"} {
			if !strings.Contains(last, want) {
				t.Errorf("the last request does not have %q", want)
			}
		}
	}
}

// TestATooLongRequestIsCompactedAndAskedAgain: the service knows better than any reckoning what it takes.
func TestATooLongRequestIsCompactedAndAskedAgain(t *testing.T) {
	calls, refused := 0, 0
	w := newWire(t, func(rw http.ResponseWriter, r *http.Request, q contract.TurnRequest) {
		if len(flat(t, q)) > 20_000 {
			refused++
			chunk(rw, contract.TurnChunk{Error: &contract.TurnError{Code: "overflow", Message: "prompt is too long"}})
			return
		}
		if asksToSumUp(q) {
			say(contract.Part{Text: "summary"})(rw, r, q)
			return
		}
		if calls++; calls > 30 {
			say(use("z", "end", `{"text":"x"}`))(rw, r, q)
			return
		}
		say(use("a", "touch", fmt.Sprintf(`{"text":"%d"}`, calls)))(rw, r, q)
	})
	b := &bench{out: func(contract.ToolCall) string { return strings.Repeat("o", 2000) }}
	o := options(w, b)
	o.Limits.Context = 1 << 20
	o.Tools = endless{b}
	if out := run(t, o); out.Reason != harness.Finished {
		t.Fatalf("%+v", out)
	}
	if refused == 0 {
		t.Fatal("no request was too long; the test tries nothing")
	}
}

// TestReadsAreMadeBesideEachOther: calls that only read, next to each other, are under way at the same time; others are not,
// and returns keep the order of their calls.
func TestReadsAreMadeBesideEachOther(t *testing.T) {
	meet := make(chan struct{})
	b := &meeting{bench: &bench{}, meet: meet}
	w := newWire(t, say(use("a", "echo", `{"text":"1"}`), use("b", "echo", `{"text":"2"}`), use("c", "touch", `{"text":"3"}`)), say(use("z", "end", `{"text":"x"}`)))
	o := options(w, b.bench)
	o.Tools = b
	if out := run(t, o); out.Reason != harness.Finished || out.Usage.ToolCalls != 4 {
		t.Fatalf("%+v", out)
	}
	var got []string
	for _, p := range w.reqs[1].Messages[2].Parts {
		got = append(got, p.Return.ID)
	}
	if strings.Join(got, " ") != "a b c" {
		t.Errorf("returns %v", got)
	}
}

// meeting is a bench whose calls of echo return only when two are under way.
type meeting struct {
	*bench
	meet chan struct{}
}

func (m *meeting) Call(ctx context.Context, c contract.ToolCall) (harness.Return, error) {
	if c.Name == "echo" {
		select {
		case m.meet <- struct{}{}:
		case <-m.meet:
		case <-ctx.Done():
			return harness.Return{}, ctx.Err()
		}
	}
	return m.bench.Call(ctx, c)
}

// TestReasoningAndCutCalls: what a model thought is sent back as it came, and a call whose arguments were cut off is not run
// but told, with what arrived.
func TestReasoningAndCutCalls(t *testing.T) {
	thought := contract.Part{Reasoning: &contract.Reasoning{Provider: "p", Text: "hm", Opaque: "signed"}}
	cut := contract.Part{Call: &contract.ToolCall{ID: "a", Name: "touch", Args: json.RawMessage(`"{\"text\":\"half of"`), Cut: true, Arrived: 4711}}
	w := newWire(t, say(thought, cut), say(use("z", "end", `{"text":"x"}`)))
	b := &bench{}
	if out := run(t, options(w, b)); out.Reason != harness.Finished {
		t.Fatalf("%+v", out)
	}
	if strings.Join(b.calls, " ") != "end" {
		t.Errorf("calls %v", b.calls)
	}
	second := w.reqs[1].Messages
	if got := second[1].Parts[0].Reasoning; got == nil || got.Opaque != "signed" {
		t.Errorf("the thought is sent back as %+v", second[1].Parts)
	}
	if got := second[2].Parts[0].Return.Content; !strings.Contains(got, "4711 bytes") || !strings.Contains(got, "half of") {
		t.Errorf("the cut call returned %q", got)
	}
}

// TestAnInterruptedTurnIsClosedOnce: a call without a return is answered as unknown, and that is recorded, so that another
// crash asks the same.
func TestAnInterruptedTurnIsClosedOnce(t *testing.T) {
	w := newWire(t, say(use("z", "end", `{"text":"x"}`)))
	o := options(w, &bench{})
	o.History = []harness.Record{
		{Index: 0, Told: "the goal", Message: contract.Message{Role: contract.MessageAssistant, Parts: []contract.Part{use("a", "touch", `{"text":"x"}`)}}},
		{Index: 1, Message: contract.Message{Role: contract.MessageAssistant, Parts: []contract.Part{use("b", "touch", `{"text":"y"}`)}}},
	}
	var recorded []harness.Record
	o.Record = func(_ context.Context, r harness.Record) error { recorded = append(recorded, r); return nil }
	if out := run(t, o); out.Reason != harness.Finished {
		t.Fatalf("%+v", out)
	}
	if len(recorded) < 2 || recorded[0].Index != 0 || recorded[0].Returns == nil || recorded[0].Told != "the goal" || recorded[1].Index != 1 || recorded[1].Returns == nil {
		t.Fatalf("recorded %+v", recorded)
	}
}
