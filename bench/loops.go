package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"choir.dev/choiros/bench/instant"
	"choir.dev/choiros/bench/report"
	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/gateway"
	"choir.dev/choiros/internal/harness"
	"choir.dev/choiros/internal/view"
)

// turns measures a task of 200 turns through the binary: what a turn takes beside its model, and how much of the requests the ones
// before had begun with, as the run itself says.
func turns(ctx context.Context, e *env) (_ []report.Result, err error) {
	n := e.size(200, 20)
	model, err := instant.New(n)
	if err != nil {
		return nil, err
	}
	defer model.Close()
	e.config = instantly(model)
	w, err := e.openWorld(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	var used sample
	var run view.Run
	if err := used.try(w.meter, func() error {
		acted, err := w.api.Prompt(ctx, view.Prompt{ID: contract.NewID(), Text: "Look on."})
		if err == nil {
			run, err = w.api.Wait(ctx, acted.Run)
		}
		return err
	}); err != nil {
		return nil, err
	}
	gaps := times(model.Gaps())
	if run.Status != contract.RunDone || len(gaps) < n {
		return nil, fmt.Errorf("the run is %s after %d requests: %s", run.Status, len(gaps)+1, report.OneLine(run.Summary))
	}
	last := gaps[len(gaps)-1-n/4 : len(gaps)-1]
	var raw sample
	for range last {
		err = errors.Join(err, raw.timed(exec.CommandContext(ctx, "bash", "-c", "echo 1").Run))
	}
	turn := sample{times: last}.tell(report.Result{ID: "turn", What: fmt.Sprintf("own part of a turn, at turn %d", n), Raw: raw.ms(), RawWhat: "its command by itself, with bash on the host, after the run", Target: report.AtMost(report.OfAdded, 5, "ms"),
		Note: "From the end of a model's answer to its next request, over the last quarter of one task: the call of a tool in a box, four events, and the way of both through the gateway and the loop's box. The command, which the model wants, is no part of our own."})
	if each, syncs := used.each(n); each != nil {
		turn.Fsyncs = syncs
		turn.Note += fmt.Sprintf(" The whole run took %s of the processor for each turn, all processes.", millis(*each))
	}
	u := run.Usage
	share := report.Result{ID: "turn-repeated", What: fmt.Sprintf("of the requests of %d turns, what the one before had begun with", n), Target: report.AtLeast(report.OfOurs, 90, "%"),
		Note: "As the run says of itself (usage.tokens_repeated of tokens_in), its Director's requests with them."}
	if u.TokensIn > 0 {
		share.Ours = &report.Quantity{Value: 100 * float64(u.TokensRepeated) / float64(u.TokensIn), Unit: "%"}
	}
	return []report.Result{turn, share}, err
}

// instantly configures a control plane for a model that answers at once, with a budget that no row spends.
func instantly(m *instant.Model) string {
	return fmt.Sprintf("turns = 400\ntool_calls = 400\ntokens = 100000000\ncost_usd = 0\n[models]\ndefault = %q\n[models.providers.instant]\nbase_url = %q\n", instant.Name, m.URL)
}

// openGateway is a gateway whose model is a server of this process.
func openGateway(url string) (*gateway.Gateway, error) {
	return gateway.New(gateway.Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), LocalBaseURL: "none", Default: instant.Name,
		Providers: map[string]gateway.Service{"instant": {BaseURL: url}}})
}

func looksOn(n int) contract.TurnRequest {
	return contract.TurnRequest{System: "Look on.", MaxTokens: 500, Tools: lookTools{}.Specs(),
		Messages: []contract.Message{{Role: contract.MessageUser, Parts: []contract.Part{{Text: strings.Repeat("What is there? ", n)}}}}}
}

// lookTools are tools that return at once.
type lookTools struct{}

// Specs implements harness.Tools.
func (lookTools) Specs() []contract.ToolSpec {
	any := json.RawMessage(`{"type":"object"}`)
	return []contract.ToolSpec{{Name: "bash", Schema: any}, {Name: "finish", Schema: any}}
}

// ReadOnly implements harness.Tools.
func (lookTools) ReadOnly(name string) bool { return name == "bash" }

// Call implements harness.Tools.
func (lookTools) Call(_ context.Context, c contract.ToolCall) (harness.Return, error) {
	return harness.Return{Content: "seen " + c.ID, End: c.Name == "finish"}, nil
}

type gatewayModel struct {
	g     *gateway.Gateway
	scope gateway.Scope
}

// Turn implements harness.Model.
func (m gatewayModel) Turn(ctx context.Context, req contract.TurnRequest, onDelta func(string)) (contract.Turn, error) {
	return m.g.Turn(ctx, m.scope, req, onDelta)
}

// look drives one loop until its end.
func look(ctx context.Context, g *gateway.Gateway) error {
	out, err := harness.Run(ctx, harness.Options{Model: gatewayModel{g, gateway.Scope{CID: contract.NewCID(), Run: contract.NewID(), Role: string(contract.KindAssociate)}},
		Tools: lookTools{}, EndTool: "finish", Opening: func(context.Context) (string, error) { return "Look on.", nil }})
	if err == nil && out.Reason != harness.Finished {
		err = fmt.Errorf("a loop ended as %s: %s", out.Reason, out.Detail)
	}
	return err
}

// firstByte measures what the gateway adds until the first byte of an answer.
func firstByte(ctx context.Context, e *env) ([]report.Result, error) {
	first := make(chan struct{}, 1)
	answer := `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"Yes."},"finish_reason":null}]}` + "\n\n" +
		`data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":1,"total_tokens":10}}` + "\n\ndata: [DONE]\n\n"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // a client that has gone needs no answer
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, answer)
	}))
	defer server.Close()
	g, err := openGateway(server.URL + "/v1")
	if err != nil {
		return nil, err
	}
	defer g.Close()
	scope := gateway.Scope{CID: contract.NewCID(), Run: contract.NewID(), Role: string(contract.KindAssociate)}
	req := looksOn(e.size(4000, 10))
	body, err := json.Marshal(req)
	if err != nil {
		return nil, err
	}
	client := &http.Client{}
	var ours, raw times
	for range e.rounds(200, 20, actLimit) {
		at := time.Now()
		_, err := g.Turn(ctx, scope, req, func(string) {
			select {
			case first <- struct{}{}:
				ours = append(ours, time.Since(at))
			default:
			}
		})
		<-first
		if err != nil {
			return nil, err
		}
		at = time.Now()
		resp, err := client.Post(server.URL, "application/json", strings.NewReader(string(body)))
		if err != nil {
			return nil, err
		}
		_, err = resp.Body.Read(make([]byte, 1))
		raw = append(raw, time.Since(at))
		_, rest := io.Copy(io.Discard, resp.Body)
		if err = errors.Join(err, rest, resp.Body.Close()); err != nil {
			return nil, err
		}
	}
	return []report.Result{sample{times: ours}.tell(report.Result{ID: "first-byte", What: "first byte of a model's answer, what the gateway adds", Raw: raw.ms(), Target: report.AtMost(report.OfAdded, 2, "ms"),
		RawWhat: "a bare request with as many bytes to the same server",
		Note:    fmt.Sprintf("A request of %d kB to a server that answers at once. The gateway alone, in one process.%s", len(body)/1000, fastest(ours, raw))})}, nil
}

// waitingRuns measures the memory of a loop that waits for its model.
func waitingRuns(ctx context.Context, e *env) (_ []report.Result, err error) {
	n := e.size(200, 20)
	model, err := instant.New(1)
	if err != nil {
		return nil, err
	}
	defer model.Close()
	g, err := openGateway(model.URL)
	if err != nil {
		return nil, err
	}
	defer g.Close()
	if err := look(ctx, g); err != nil { // what is made once
		return nil, err
	}
	release := model.Hold()
	before, asked := held(), len(model.Gaps())+1
	var loops errgroup.Group
	for range n {
		loops.Go(func() error { return look(ctx, g) })
	}
	defer func() {
		release()
		err = errors.Join(err, loops.Wait())
	}()
	if err := model.Asked(ctx, asked+n); err != nil {
		return nil, err
	}
	more := float64(held()-before) / float64(n) / 1000
	return []report.Result{{ID: "waiting", What: "memory of a loop that waits for its model", Ours: &report.Quantity{Value: more, Unit: "kB"}, Target: report.AtMost(report.OfOurs, 200, "kB"),
		Note: fmt.Sprintf("Heap and stacks of %d loops more, after a collection: loop, gateway, and both ends of each connection, for the model server is in the same process.", n)}}, nil
}

// held is the memory of the heap's objects and of stacks.
func held() int64 {
	runtime.GC()
	runtime.GC() // what the first one's finalizers let go
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
