package e2e_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
	"choir.dev/choiros/test/modelserver"
)

// shop is a server of tools elsewhere, which outlives choir and counts what it is asked for.
type shop struct {
	mu     sync.Mutex
	orders []string
	deaf   bool // it takes an order and does not answer
}

func (s *shop) order(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	s.mu.Lock()
	s.orders = append(s.orders, string(r.Params.Arguments))
	deaf := s.deaf
	s.mu.Unlock()
	if deaf {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "ordered as number 4711"}}}, nil
}

func (s *shop) taken() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.orders...)
}

// open starts it, and returns its address and what choir needs to reach it.
func (s *shop) open(t *testing.T) (address string, env []string) {
	t.Helper()
	server := mcp.NewServer(&mcp.Implementation{Name: "shop", Version: "1"}, nil)
	server.AddTool(&mcp.Tool{Name: "order", Description: "Orders something.", InputSchema: json.RawMessage(`{"type":"object","properties":{"what":{"type":"string"}},"required":["what"],"additionalProperties":false}`)}, s.order)
	srv, ca := tlsServer(t, "127.0.0.1", mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{DisableLocalhostProtection: true}))
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, ca, 0o644); err != nil {
		t.Fatal(err)
	}
	at := srv.Listener.Addr().String()
	return "https://" + at + "/mcp", []string{"CHOIR_EGRESS_ALLOW_PRIVATE=" + at, "CHOIR_EGRESS_CA_FILE=" + file, "SSL_CERT_FILE=" + file}
}

// TestWhatAKillInterruptsOutsideIsNotDoneTwice: choir is killed while a server has taken an order and not answered. The run goes
// on, is told that the order may have happened, and can't make it again; the command line, the run and its document say that it is
// unknown; a person says what they found, once; and a run that continues is told all of it to undo it.
func TestWhatAKillInterruptsOutsideIsNotDoneTwice(t *testing.T) {
	t.Parallel()
	s := &shop{deaf: true}
	address, env := s.open(t)
	const order = "mcp__shop__order"
	m := modelserver.New(modelserver.Script{Turns: join(
		useTools([]any{order}, tool(order, object{"what": "a ladder"}), tool(order, object{"what": "a ladder"})),
		director(report("done", "Looked.")))}).Start()
	t.Cleanup(m.Close)
	env = append(env, modelEnv(m, modelserver.Anthropic, newKey())...)
	in := choirtest.Start(t, choirtest.Options{Env: env})
	in.Must(t, "mcp", "add", "shop", "--url", address)
	in.Must(t, "mcp", "approve", "shop", "order", "--yes")
	run := submit(t, in, "order a ladder")
	choirtest.Eventually(t, time.Minute, "the shop has the order", func() bool { return len(s.taken()) == 1 })
	if e := eventsOf(t, in, "effect.intended"); len(e) != 1 {
		t.Fatalf("%d intentions when the order has left", len(e))
	}
	in.Kill()
	s.mu.Lock()
	s.deaf = false
	s.mu.Unlock()
	in = choirtest.Start(t, choirtest.Options{Data: in.Data, Env: env})
	r := ended(t, in, run)
	if got := s.taken(); len(got) != 1 {
		t.Errorf("the shop was asked %d times: %q", len(got), got)
	}
	var heard string
	for _, q := range m.Requests() {
		if q.Role == "associate" {
			heard = q.Text
		}
	}
	for _, want := range []string{"Unknown: it may have happened outside (shop order", "is not made again by itself. Nothing was sent now"} {
		if !strings.Contains(heard, want) {
			t.Errorf("the model is not told %q:\n%.5000s", want, heard)
		}
	}
	if ends := eventsOf(t, in, "effect.ended"); len(ends) != 1 || data[contract.EffectEnded](t, ends[0]).Outcome != contract.EffectUnknown {
		t.Errorf("it ended as %+v", ends)
	}
	var unknown []view.Effect
	in.JSON(t, &unknown, "effects", "--run", run, "--outcome", "unknown")
	if len(unknown) != 1 || unknown[0].Target != "shop order" {
		t.Fatalf("%+v", unknown)
	}
	id := unknown[0].ID
	for what, said := range map[string]string{"choir runs": in.Must(t, "runs", run), "its report": r.Summary, "its document": in.Must(t, "documents", "show", r.Document)} {
		if !strings.Contains(said, id) {
			t.Errorf("%s does not name what is unknown:\n%s", what, said)
		}
	}
	if res := r.Tasks[0].Result; res == nil || len(res.Effects) != 1 || res.Effects[0].Outcome != contract.EffectUnknown {
		t.Errorf("the task's result names %+v", res)
	}
	if offered := in.Must(t, "__complete", "effects", "show", ""); !strings.Contains(offered, id+"\t") {
		t.Errorf("a shell is offered %q", offered)
	}
	if said := in.Must(t, "effects", "show", id); !strings.Contains(said, `"what":"a ladder"`) || !strings.Contains(said, "choir effects resolve") {
		t.Errorf("%s", said)
	}
	in.Must(t, "effects", "resolve", id, "--done", "--note", "order 4711 is there")
	if again, err := in.Run(t.Context(), "effects", "resolve", id, "--not-done"); err != nil || again.Code == 0 {
		t.Errorf("resolved twice: %v %+v", err, again)
	}
	var p prompted
	in.JSON(t, &p, "effects", "compensate", id, "keep the account")
	if next := ended(t, in, p.Run); next.Continues != run {
		t.Errorf("it continues %q", next.Continues)
	}
	requests := m.Requests()
	last := requests[len(requests)-1].Text
	for _, want := range []string{"Undo outside, if it can be undone there", "keep the account", "> effect " + id + " (done): shop order", "> arguments: {\"what\":\"a ladder\"}", "the user found: done order 4711 is there"} {
		if !strings.Contains(strings.ReplaceAll(last, `\"`, `"`), want) {
			t.Errorf("the run that is to undo it is not told %q:\n%.6000s", want, last)
		}
	}
}
