package harness_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/harness"
	"choir.dev/choiros/internal/turnlines"
)

// wire is a scripted gateway over real HTTP with real NDJSON. Each element answers one request, and
// the last one every further request.
type wire struct {
	t    *testing.T
	mu   sync.Mutex
	next int
	play []func(w http.ResponseWriter, r *http.Request, req contract.TurnRequest)
	reqs []contract.TurnRequest
	srv  *httptest.Server
	// stands is closed when the host continues; nil: it never stopped.
	stands chan struct{}
	used   time.Duration // the elapsed time that the host reports
}

// clock answers how much time has elapsed, once the host runs.
func (w *wire) clock(rw http.ResponseWriter) {
	if w.stands == nil {
		http.NotFound(rw, nil)
		return
	}
	<-w.stands
	_ = json.NewEncoder(rw).Encode(harness.Clock{UsedMS: w.used.Milliseconds()})
}

func newWire(t *testing.T, play ...func(http.ResponseWriter, *http.Request, contract.TurnRequest)) *wire {
	w := &wire{t: t, play: play}
	w.srv = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/clock" {
			w.clock(rw)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("request: %v", err)
		}
		req, err := turnlines.Decode(body)
		if err != nil {
			t.Errorf("the harness sent an invalid request: %v", err)
		}
		w.mu.Lock()
		f := w.play[min(w.next, len(w.play)-1)]
		w.next++
		w.reqs = append(w.reqs, req)
		w.mu.Unlock()
		f(rw, r, req)
	}))
	t.Cleanup(w.srv.Close)
	return w
}

func (w *wire) model() harness.Model {
	return &harness.HTTPModel{Client: w.srv.Client(), Base: w.srv.URL, Idle: 2 * time.Second}
}

func chunk(w http.ResponseWriter, c contract.TurnChunk) {
	_ = json.NewEncoder(w).Encode(c)
	w.(http.Flusher).Flush()
}

func say(parts ...contract.Part) func(http.ResponseWriter, *http.Request, contract.TurnRequest) {
	return func(w http.ResponseWriter, _ *http.Request, _ contract.TurnRequest) {
		chunk(w, contract.TurnChunk{Turn: &contract.Turn{Provider: "p", Model: "m", Stop: contract.StopToolUse,
			Message: contract.Message{Role: contract.MessageAssistant, Parts: parts}, Usage: contract.Usage{TokensIn: 10, TokensOut: 5}}})
	}
}

func raw(s string) func(http.ResponseWriter, *http.Request, contract.TurnRequest) {
	return func(w http.ResponseWriter, _ *http.Request, _ contract.TurnRequest) { fmt.Fprintln(w, s) }
}

func use(id, name, args string) contract.Part {
	return contract.Part{Call: &contract.ToolCall{ID: id, Name: name, Args: json.RawMessage(args)}}
}

// bench is a set of tools: echo returns its text, touch changes something, and end ends the loop.
type bench struct {
	mu    sync.Mutex
	calls []string
	block chan struct{}
	out   func(c contract.ToolCall) string
}

func (b *bench) Specs() []contract.ToolSpec {
	obj := func(props string) json.RawMessage {
		return json.RawMessage(`{"type":"object","additionalProperties":false,"required":["text"],"properties":{` + props + `}}`)
	}
	return []contract.ToolSpec{{Name: "echo", Schema: obj(`"text":{"type":"string","maxLength":100}`)},
		{Name: "touch", Schema: obj(`"text":{"type":"string"}`)}, {Name: "end", Schema: obj(`"text":{"type":"string"}`)}}
}

func (b *bench) ReadOnly(name string) bool { return name == "echo" }

func (b *bench) Call(ctx context.Context, c contract.ToolCall) (harness.Return, error) {
	b.mu.Lock()
	b.calls = append(b.calls, c.Name)
	b.mu.Unlock()
	if b.block != nil {
		close(b.block)
		<-ctx.Done()
		return harness.Return{}, ctx.Err()
	}
	if b.out != nil {
		return harness.Return{Content: b.out(c)}, nil
	}
	return harness.Return{Content: "did " + c.Name, End: c.Name == "end"}, nil
}

func options(w *wire, b *bench) harness.Options {
	return harness.Options{Model: w.model(), Tools: b, EndTool: "end",
		Opening: func(context.Context) (string, error) { return "the goal", nil },
		Backoff: func(int) time.Duration { return time.Millisecond }}
}

func run(t *testing.T, o harness.Options) harness.Outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out, err := harness.Run(ctx, o)
	if err != nil {
		t.Fatalf("run: %v", err)
	}
	return out
}

func TestRunsToolsUntilTheEnd(t *testing.T) {
	w := newWire(t, say(contract.Part{Text: "I look."}, use("a", "echo", `{"text":"x"}`)), say(use("b", "end", `{"text":"done"}`)))
	b := &bench{}
	o := options(w, b)
	var recorded []harness.Record
	o.Record = func(_ context.Context, r harness.Record) error { recorded = append(recorded, r); return nil }
	o.News = func(context.Context) ([]string, error) { return []string{"The user says (1): hurry"}, nil }
	out := run(t, o)
	if out.Reason != harness.Finished || out.Turns != 2 || out.Usage.TokensIn != 20 || out.Usage.ToolCalls != 2 {
		t.Fatalf("outcome %+v", out)
	}
	if strings.Join(b.calls, " ") != "echo end" {
		t.Fatalf("calls %v", b.calls)
	}
	if len(recorded) != 4 || recorded[0].Returns != nil || recorded[1].Returns == nil || recorded[1].Index != 0 || recorded[3].Index != 1 {
		t.Fatalf("recorded %+v", recorded)
	}
	first := w.reqs[0].Messages
	if got := first[0].Parts[0].Text; !strings.HasPrefix(got, "the goal\n\n## Said since\n\nThe user says (1): hurry") {
		t.Errorf("steering %q", got)
	}
	last := w.reqs[1].Messages
	if len(last) != 3 || last[2].Parts[0].Return.Content != "did echo" || len(last[2].Parts) != 1 {
		t.Errorf("second request %+v; nothing is told twice", last)
	}
}

func TestBadModels(t *testing.T) {
	turn := func(stop contract.StopReason, parts ...contract.Part) string {
		b, err := json.Marshal(contract.TurnChunk{Turn: &contract.Turn{Stop: stop, Message: contract.Message{Role: contract.MessageAssistant, Parts: parts}}})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	status := func(code int) func(http.ResponseWriter, *http.Request, contract.TurnRequest) {
		return func(w http.ResponseWriter, _ *http.Request, _ contract.TurnRequest) { http.Error(w, "no", code) }
	}
	fail := func(code string, again bool) func(http.ResponseWriter, *http.Request, contract.TurnRequest) {
		return func(w http.ResponseWriter, _ *http.Request, _ contract.TurnRequest) {
			chunk(w, contract.TurnChunk{Error: &contract.TurnError{Code: code, Message: code, Retriable: again}})
		}
	}
	end := say(use("z", "end", `{"text":"x"}`))
	type play = []func(http.ResponseWriter, *http.Request, contract.TurnRequest)
	for name, c := range map[string]struct {
		play play
		want harness.Reason
		reqs int
	}{
		"garbage instead of NDJSON":   {play{raw("<html>boom</html>")}, harness.ModelError, 3},
		"garbage, then fine":          {play{raw("{"), end}, harness.Finished, 2},
		"an empty stream":             {play{raw("")}, harness.ModelError, 3},
		"HTTP 429":                    {play{status(429)}, harness.ModelError, 3},
		"HTTP 500, then fine":         {play{status(500), end}, harness.Finished, 2},
		"HTTP 400 is not repeated":    {play{status(400)}, harness.ModelError, 1},
		"rate limited, then fine":     {play{fail("rate_limited", true), end}, harness.Finished, 2},
		"no model":                    {play{fail("no_model", false)}, harness.ModelError, 1},
		"the gateway's budget":        {play{fail("budget", false)}, harness.Budget, 1},
		"an empty answer":             {play{raw(turn(contract.StopEnd))}, harness.Silence, 3},
		"text only":                   {play{raw(turn(contract.StopEnd, contract.Part{Text: "I think…"}))}, harness.Silence, 3},
		"cut off":                     {play{raw(turn(contract.StopLength, contract.Part{Text: "a"})), end}, harness.Finished, 2},
		"a refusal":                   {play{raw(turn(contract.StopRefusal, contract.Part{Text: "no"}))}, harness.Refused, 1},
		"an unknown tool":             {play{say(use("a", "rm_rf", `{}`))}, harness.Silence, 3},
		"an unknown tool, then fine":  {play{say(use("a", "rm_rf", `{}`)), end}, harness.Finished, 2},
		"a name of 1 MB":              {play{say(use("a", strings.Repeat("x", 1<<20), `{}`)), end}, harness.Finished, 2},
		"arguments of the wrong type": {play{say(use("a", "echo", `{"text":3}`)), end}, harness.Finished, 2},
		"arguments that are a list":   {play{say(use("a", "echo", `[1]`)), end}, harness.Finished, 2},
		"no arguments":                {play{raw(`{"turn":{"message":{"role":"assistant","parts":[{"call":{"id":"a","name":"echo","args":null}}]},"stop":"tool_use"}}`), end}, harness.Finished, 2},
		"too long an argument":        {play{say(use("a", "echo", `{"text":"`+strings.Repeat("x", 200)+`"}`)), end}, harness.Finished, 2},
		"empty and doubled ids":       {play{say(use("", "echo", `{"text":"1"}`), use("", "echo", `{"text":"2"}`)), say(use("t0_c1", "end", `{"text":"x"}`))}, harness.Finished, 2},
		"10 MB of text": {play{func(w http.ResponseWriter, _ *http.Request, _ contract.TurnRequest) {
			for range 160 {
				chunk(w, contract.TurnChunk{Delta: strings.Repeat("y", 64<<10)})
			}
			chunk(w, contract.TurnChunk{Turn: &contract.Turn{Stop: contract.StopTruncate, Message: contract.Message{Parts: []contract.Part{{Text: strings.Repeat("y", 1<<20)}}}}})
		}}, harness.Silence, 3},
		"an endless stream": {play{func(w http.ResponseWriter, r *http.Request, _ contract.TurnRequest) {
			for r.Context().Err() == nil {
				if _, err := fmt.Fprintf(w, "{\"delta\":%q}\n", strings.Repeat("y", 1<<20)); err != nil {
					return
				}
			}
		}}, harness.ModelError, 3},
		"a silent stream": {play{func(w http.ResponseWriter, r *http.Request, _ contract.TurnRequest) {
			chunk(w, contract.TurnChunk{Delta: "a"})
			<-r.Context().Done()
		}, end}, harness.Finished, 2},
		"negative usage": {play{raw(`{"turn":{"message":{"role":"assistant","parts":[{"call":{"id":"a","name":"end","args":{"text":"x"}}}]},"stop":"end","usage":{"tokens_in":-5,"cost_usd":-1}}}`)}, harness.Finished, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t, c.play...)
			out := run(t, options(w, &bench{}))
			w.mu.Lock()
			defer w.mu.Unlock()
			if out.Reason != c.want || len(w.reqs) != c.reqs {
				t.Fatalf("ended as %s after %d requests (%s); want %s after %d", out.Reason, len(w.reqs), out.Detail, c.want, c.reqs)
			}
			if out.Usage.Validate() != nil {
				t.Errorf("usage %+v", out.Usage)
			}
		})
	}
}

func TestAThousandCallsInOneTurn(t *testing.T) {
	var parts []contract.Part
	for i := range 1000 {
		parts = append(parts, use(fmt.Sprint("c", i), "touch", fmt.Sprintf(`{"text":"%d"}`, i)))
	}
	w := newWire(t, say(parts...), say(use("z", "end", `{"text":"x"}`)))
	b := &bench{}
	if out := run(t, options(w, b)); out.Reason != harness.Finished {
		t.Fatalf("%+v", out)
	}
	if len(b.calls) != 17 {
		t.Fatalf("%d calls ran", len(b.calls))
	}
}

func TestRepetitionWarnsThenStops(t *testing.T) {
	w := newWire(t, say(use("a", "echo", `{"text":"same"}`)))
	b := &bench{}
	out := run(t, options(w, b))
	if out.Reason != harness.Repetition || len(b.calls) != 6 {
		t.Fatalf("%+v after %d calls", out, len(b.calls))
	}
	warned := false
	for _, m := range w.reqs[len(w.reqs)-1].Messages {
		for _, p := range m.Parts {
			warned = warned || strings.Contains(p.Text, "same arguments")
		}
	}
	if !warned {
		t.Error("the model was not warned")
	}
}

// TestRepetitionWithinOneTurnWarnsFirst: repeated calls within one turn do not end the loop at
// once, since the model had no answer yet. It is warned, and the loop ends if it continues.
func TestRepetitionWithinOneTurnWarnsFirst(t *testing.T) {
	var same []contract.Part
	for i := range 8 {
		same = append(same, use(fmt.Sprint("c", i), "echo", `{"text":"same"}`))
	}
	w := newWire(t, say(same...), say(use("z", "end", `{"text":"x"}`)))
	if out := run(t, options(w, &bench{})); out.Reason != harness.Finished {
		t.Fatalf("%+v", out)
	}
	notes := 0
	for _, m := range w.reqs[len(w.reqs)-1].Messages {
		for _, p := range m.Parts {
			notes += strings.Count(p.Text, "same arguments")
		}
	}
	if notes != 1 {
		t.Errorf("the model was warned %d times", notes)
	}
	w = newWire(t, say(same...), say(use("y", "echo", `{"text":"same"}`)), say(use("z", "end", `{"text":"x"}`)))
	if out := run(t, options(w, &bench{})); out.Reason != harness.Repetition {
		t.Fatalf("a model that goes on: %+v", out)
	}
}

func TestARepeatedTestAfterAChangeIsProgress(t *testing.T) {
	var play []func(http.ResponseWriter, *http.Request, contract.TurnRequest)
	for i := range 8 {
		play = append(play, say(use("a", "touch", fmt.Sprintf(`{"text":"%d"}`, i)), use("b", "echo", `{"text":"test"}`)))
	}
	w := newWire(t, append(play, say(use("z", "end", `{"text":"x"}`)))...)
	if out := run(t, options(w, &bench{})); out.Reason != harness.Finished {
		t.Fatalf("%+v", out)
	}
}

func TestBudgets(t *testing.T) {
	other := func() func(http.ResponseWriter, *http.Request, contract.TurnRequest) {
		n := 0
		return func(w http.ResponseWriter, r *http.Request, q contract.TurnRequest) {
			n++
			say(use("a", "echo", fmt.Sprintf(`{"text":"%d"}`, n)))(w, r, q)
		}
	}
	for name, c := range map[string]struct {
		set    func(*harness.Options)
		detail string
	}{
		"turns":      {func(o *harness.Options) { o.Limits.Turns = 4 }, "4 model turns"},
		"tool calls": {func(o *harness.Options) { o.Budget.ToolCalls = 3 }, "3 tool calls"},
		"tokens":     {func(o *harness.Options) { o.Budget.Tokens = 40 }, "40 tokens"},
		"resumed":    {func(o *harness.Options) { o.Budget.Tokens = 40; o.Spent.TokensIn = 40 }, "40 tokens"},
		"wall": {func(o *harness.Options) {
			o.Budget.WallS = 5
			at := time.Unix(0, 0)
			o.Now = func() time.Time { at = at.Add(200 * time.Millisecond); return at }
		}, "5 seconds"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWire(t, other())
			o := options(w, &bench{})
			c.set(&o)
			out := run(t, o)
			if out.Reason != harness.Budget || !strings.Contains(out.Detail, c.detail) {
				t.Fatalf("%+v", out)
			}
		})
	}
}

// TestAHostThatStoodStillTakesNoTimeOfTheLoop: the loop runs on while the host is stopped and can't
// answer. That must use up neither the loop's budget nor its timeouts.
func TestAHostThatStoodStillTakesNoTimeOfTheLoop(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(*harness.Options, *wire)
	}{
		{"budget", func(o *harness.Options, w *wire) {
			o.Budget.WallS = 1
			o.Used = harness.Host{Client: w.srv.Client(), Base: w.srv.URL}.Used
		}},
		{"patience", func(o *harness.Options, w *wire) {
			o.Model = &harness.HTTPModel{Client: w.srv.Client(), Base: w.srv.URL, Idle: time.Second}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			stands := make(chan struct{})
			w := newWire(t, func(rw http.ResponseWriter, r *http.Request, req contract.TurnRequest) {
				<-stands
				say(use("a", "end", `{"text":"x"}`))(rw, r, req)
			})
			w.stands = stands
			o := options(w, &bench{})
			c.set(&o, w)
			time.AfterFunc(2*time.Second, func() { close(stands) })
			if out := run(t, o); out.Reason != harness.Finished || len(w.reqs) != 1 {
				t.Errorf("%+v after %d requests", out, len(w.reqs))
			}
		})
	}
}

func TestCancellationEndsACallUnderWay(t *testing.T) {
	w := newWire(t, say(use("a", "echo", `{"text":"x"}`)))
	b := &bench{block: make(chan struct{})}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	go func() { <-b.block; cancel(why) }()
	if _, err := harness.Run(ctx, options(w, b)); !errors.Is(err, why) {
		t.Fatalf("got %v", err)
	}
}

func TestCancellationEndsAModelUnderWay(t *testing.T) {
	started := make(chan struct{})
	w := newWire(t, func(_ http.ResponseWriter, r *http.Request, _ contract.TurnRequest) {
		close(started)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-started; cancel() }()
	if _, err := harness.Run(ctx, options(w, &bench{})); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
}

func TestResumeSaysWhatIsUnknown(t *testing.T) {
	w := newWire(t, say(use("z", "end", `{"text":"x"}`)))
	o := options(w, &bench{})
	o.History = []harness.Record{{Index: 0, Message: contract.Message{Role: contract.MessageAssistant, Parts: []contract.Part{use("a", "touch", `{"text":"x"}`)}}}}
	if out := run(t, o); out.Reason != harness.Finished || out.Turns != 2 {
		t.Fatalf("%+v", out)
	}
	r := w.reqs[0].Messages[2].Parts[0].Return
	if r == nil || r.ID != "a" || !r.IsError || !strings.HasPrefix(r.Content, "Unknown") {
		t.Fatalf("return %+v", r)
	}
}

func TestContextStaysBounded(t *testing.T) {
	n := 0
	w := newWire(t, func(rw http.ResponseWriter, r *http.Request, q contract.TurnRequest) {
		if n++; n >= 30 {
			say(use("z", "end", `{"text":"x"}`))(rw, r, q)
			return
		}
		say(contract.Part{Text: strings.Repeat("t", 20<<10)}, use("a", "touch", fmt.Sprintf(`{"text":"%d%s"}`, n, strings.Repeat("a", 300<<10))))(rw, r, q)
	})
	b := &bench{out: func(c contract.ToolCall) string { return strings.Repeat("é", 100<<10) }}
	o := options(w, b)
	o.Opening = func(context.Context) (string, error) { return strings.Repeat("w", 200<<10), nil }
	o.Tools = endless{b}
	out := run(t, o)
	if out.Reason != harness.Finished {
		t.Fatalf("%+v", out)
	}
	for i, q := range w.reqs {
		size := 0
		for _, m := range q.Messages {
			for _, p := range m.Parts {
				size += len(p.Text)
				if p.Call != nil {
					size += len(p.Call.Args)
				}
				if p.Return != nil {
					size += len(p.Return.Content)
				}
			}
		}
		if size > 112<<10 {
			t.Fatalf("request %d has %d bytes", i, size)
		}
	}
}

type endless struct{ *bench }

func (e endless) Call(ctx context.Context, c contract.ToolCall) (harness.Return, error) {
	r, err := e.bench.Call(ctx, c)
	r.End = c.Name == "end"
	return r, err
}
