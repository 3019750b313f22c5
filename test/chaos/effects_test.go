package chaos_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/modelserver"
)

// effectPoints are passed by a call that changes something outside, each with how often a server is asked for an order that its
// model gives twice, when choir is killed there at the first: what is unknown is not sent again, and what is known to be done is
// the model's to repeat.
var effectPoints = []struct {
	point string
	sent  int
	ended contract.EffectOutcome
}{
	{"dispatch.effect.intended", 0, contract.EffectUnknown},
	{"dispatch.effect.answered", 1, contract.EffectUnknown},
	{"dispatch.effect.ended", 2, contract.EffectDone},
}

// orders counts what a server of tools is asked for. It outlives choir.
type orders struct {
	mu    sync.Mutex
	taken map[string]int
}

func (o *orders) call(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	var in struct{ What string }
	if err := json.Unmarshal(r.Params.Arguments, &in); err != nil {
		return nil, err
	}
	o.mu.Lock()
	o.taken[in.What]++
	o.mu.Unlock()
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "ordered"}}}, nil
}

// TestAnEffectIsKilled kills choir at each point of a call that changes something outside: the log has the intention of whatever
// a server was asked for, each has one end, and what nobody knows is not sent a second time.
func TestAnEffectIsKilled(t *testing.T) {
	t.Parallel()
	o := &orders{taken: map[string]int{}}
	server := mcp.NewServer(&mcp.Implementation{Name: "shop", Version: "1"}, nil)
	server.AddTool(&mcp.Tool{Name: "order", Description: "Orders.", InputSchema: json.RawMessage(`{"type":"object","properties":{"what":{"type":"string"}},"required":["what"]}`)}, o.call)
	shop := httptest.NewTLSServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{DisableLocalhostProtection: true}))
	t.Cleanup(shop.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: shop.Certificate().Raw}), 0o644); err != nil {
		t.Fatal(err)
	}
	model := modelserver.New(modelserver.Script{}).Start()
	t.Cleanup(model.Close)
	w := newWorldAt(t, filepath.Join(t.TempDir(), "data"), func() int { return 0 }, "ANTHROPIC_API_KEY=sk-not-a-key-0000", "ANTHROPIC_BASE_URL="+model.URL(), "CHOIR_MODEL=anthropic/claude-sonnet-4-6",
		"CHOIR_LOOPS_DIRECT_WORDS=0", "CHOIR_EGRESS_ALLOW_PRIVATE="+shop.Listener.Addr().String(), "SSL_CERT_FILE="+ca)
	ctx, cancel := w.soon()
	for _, args := range [][]string{{"mcp", "add", "shop", "--url", shop.URL + "/mcp"}, {"mcp", "approve", "shop", "order", "--yes"}} {
		if said, err := w.verb(ctx, args...); err != nil {
			t.Fatalf("%v: %s", err, said)
		}
	}
	cancel()
	for n, p := range effectPoints {
		what := fmt.Sprintf("thing-%d", n)
		turn := func(role, name string, args any) modelserver.Turn {
			return modelserver.Turn{Role: role, Match: what, Calls: []modelserver.Call{{Name: name, Args: modelserver.Args(args)}}}
		}
		type object = map[string]any
		model.Add(
			turn("director", "delegate", object{"tasks": []any{object{"kind": "agent", "goal": "order " + what, "tools": []any{"mcp__shop__order"}, "verify": object{"profile": "none"}}}}),
			turn("associate", "mcp__shop__order", object{"what": what}), turn("associate", "mcp__shop__order", object{"what": what}),
			turn("associate", "finish", object{"status": "ok", "summary": "Ordered."}), turn("director", "report", object{"status": "done", "summary": "Ordered."}))
		w.arm(p.point, 1)
		ctx, cancel := w.soon()
		said := &prompt{text: "order " + what}
		err := w.run(ctx, said)
		cancel()
		w.dead(p.point)
		w.restart()
		if !w.disarm() {
			t.Fatalf("%s was not reached (%v); passed were %v", p.point, err, w.passes())
		}
		w.verify("killed at "+p.point, false)
		ctx, cancel = w.soon()
		var effects []view.Effect
		text, err := w.verb(ctx, "effects", "--run", said.run, "--json")
		if err == nil {
			err = json.Unmarshal([]byte(text), &effects)
		}
		cancel()
		o.mu.Lock()
		sent := o.taken[what]
		o.mu.Unlock()
		if first := len(effects) - 1; err != nil || sent != p.sent || len(effects) != max(p.sent, 1) || effects[first].Outcome != string(p.ended) || !strings.Contains(effects[first].What, what) {
			t.Errorf("killed at %s: sent %d times, want %d; %+v (%v)", p.point, sent, p.sent, effects, err)
		}
		histogram.add(p.point, "run done")
	}
	w.checkDeep()
	w.end()
}

// requestPoints are passed by a request that changes something outside, which a person allowed, each with what its model, which asks
// for it twice, is given to do when choir is killed there: what was allowed and had not left is sent, once, without another question.
var requestPoints = []struct {
	point string
	sent  int
	ended contract.EffectOutcome
}{
	{"dispatch.effect.allowed", 1, contract.EffectDone},
	{"dispatch.effect.intended", 0, contract.EffectUnknown},
	{"dispatch.effect.answered", 1, contract.EffectUnknown},
	{"dispatch.effect.ended", 1, contract.EffectDone},
}

// desk counts the requests that it is sent, by their bodies. It outlives choir.
type desk struct {
	mu    sync.Mutex
	taken map[string]int
}

func (d *desk) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	d.mu.Lock()
	d.taken[string(body)]++
	d.mu.Unlock()
	_, _ = io.WriteString(w, "ordered")
}

// TestARequestIsKilled kills choir at each point of a request that a person allowed: none is sent twice, none without its intention
// in the log, and a person is asked once.
func TestARequestIsKilled(t *testing.T) {
	t.Parallel()
	d := &desk{taken: map[string]int{}}
	shop := httptest.NewTLSServer(d)
	t.Cleanup(shop.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: shop.Certificate().Raw}), 0o644); err != nil {
		t.Fatal(err)
	}
	model := modelserver.New(modelserver.Script{}).Start()
	t.Cleanup(model.Close)
	w := newWorldAt(t, filepath.Join(t.TempDir(), "data"), func() int { return 0 }, "ANTHROPIC_API_KEY=sk-not-a-key-0000", "ANTHROPIC_BASE_URL="+model.URL(), "CHOIR_MODEL=anthropic/claude-sonnet-4-6",
		"CHOIR_LOOPS_DIRECT_WORDS=0", "CHOIR_EGRESS_ALLOW_PRIVATE="+shop.Listener.Addr().String(), "CHOIR_EGRESS_CA_FILE="+ca, "CHOIR_APPROVALS_WAIT_S=900")
	for n, p := range requestPoints {
		what := fmt.Sprintf("thing-%d", n)
		turn := func(role, name string, args any) modelserver.Turn {
			return modelserver.Turn{Role: role, Match: what, Calls: []modelserver.Call{{Name: name, Args: modelserver.Args(args)}}}
		}
		type object = map[string]any
		order := object{"method": "POST", "url": shop.URL + "/", "content_type": "text/plain", "body": what}
		model.Add(
			turn("director", "delegate", object{"tasks": []any{object{"kind": "agent", "goal": "order " + what, "tools": []any{"web_request"}, "verify": object{"profile": "none"}}}}),
			turn("associate", "web_request", order), turn("associate", "web_request", order),
			turn("associate", "finish", object{"status": "ok", "summary": "Ordered."}), turn("director", "report", object{"status": "done", "summary": "Ordered."}))
		w.arm(p.point, 1)
		ctx, cancel := w.soon()
		said := &prompt{text: "order " + what}
		err := w.prompt(ctx, said)
		if err == nil {
			err = w.allow(ctx)
		}
		if err == nil {
			_, err = w.c.Wait(ctx, said.run)
		}
		cancel()
		w.dead(p.point)
		w.restart()
		if !w.disarm() {
			t.Fatalf("%s was not reached (%v); passed were %v", p.point, err, w.passes())
		}
		w.verify("killed at "+p.point, false)
		ctx, cancel = w.soon()
		var effects []view.Effect
		text, err := w.verb(ctx, "effects", "--run", said.run, "--json")
		if err == nil {
			err = json.Unmarshal([]byte(text), &effects)
		}
		asked, _, failed := w.c.Approvals(ctx, true, 0, 100)
		cancel()
		d.mu.Lock()
		sent := d.taken[what]
		d.mu.Unlock()
		questions := 0
		for _, a := range asked {
			if a.Run == said.run {
				questions++
			}
		}
		if err != nil || failed != nil || sent != p.sent || questions != 1 || len(effects) != 1 || effects[0].Outcome != string(p.ended) || !strings.Contains(effects[0].What, what) {
			t.Errorf("killed at %s: sent %d times, want %d; asked %d times; %+v (%v, %v)", p.point, sent, p.sent, questions, effects, err, failed)
		}
		histogram.add(p.point, "run done")
	}
	w.checkDeep()
	w.end()
}

// allow allows the one thing that waits for an answer.
func (w *world) allow(ctx context.Context) error {
	for {
		open, _, err := w.c.Approvals(ctx, false, 0, 10)
		if err != nil {
			return err
		}
		if len(open) == 1 {
			_, err := w.c.Decide(ctx, open[0].ID, view.Decision{Digest: open[0].Digest, Answer: contract.ApprovalOnce})
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
