package e2e_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/test/choirtest"
	"choir.dev/choiros/test/modelserver"
)

// TestAnOutageIsWaitedFor: a task whose model can't be had for a while goes on where it was, in the same attempt, and the run says
// that it waits and for what.
func TestAnOutageIsWaitedFor(t *testing.T) {
	t.Parallel()
	down := modelserver.Turn{Text: "overloaded", Fault: &modelserver.Fault{Kind: "status", Status: 529}}
	in, s := startModel(t, modelserver.Anthropic, modelserver.Script{Turns: join(
		director(delegate(object{"kind": "agent", "goal": "write a note", "tools": []any{"write"}, "verify": object{"profile": "none"}}), report("done", "Noted.")),
		worker(modelserver.Turn{Calls: call("write", object{"path": "workspace/note.txt", "content": "kept\n"})}, down, down, down, down,
			modelserver.Turn{Calls: call("finish", object{"status": "ok", "summary": "The note is there."})}))},
		"CHOIR_MODELS_PATIENCE_S=120")
	p := prompt(t, in, "write a note")
	if p.code != 0 || p.Status != "done" || len(p.Tasks) != 1 {
		t.Fatalf("%+v (turns left: %v)", p, s.Left())
	}
	if started := eventsOf(t, in, "task.started"); len(started) != 1 {
		t.Errorf("the task was started %d times", len(started))
	}
	if got := in.Must(t, "files", "cat", "workspace/note.txt"); got != "kept\n" {
		t.Errorf("the note is %q", got)
	}
	waiting := eventsOf(t, in, "model.waiting")
	if len(waiting) == 0 {
		t.Fatal("nobody was told that the model is waited for")
	}
	if w := data[contract.ModelWaiting](t, waiting[0]); w.Role != "associate" || w.Code == "" || w.Message == "" || w.Until == "" {
		t.Errorf("told: %+v", w)
	}
	if r := eventsOf(t, in, "model.resumed"); len(r) != 1 || data[contract.ModelResumed](t, r[0]).Outcome != contract.WaitAnswered {
		t.Errorf("resumed: %+v", r)
	}
	var statuses []contract.RunStatus
	for _, e := range eventsOf(t, in, "run.moved") {
		statuses = append(statuses, data[contract.RunMoved](t, e).Status)
	}
	if !slices.Contains(statuses, contract.RunWaiting) {
		t.Errorf("the run was %v", statuses)
	}
}

// begins is an answer that has begun.
const begins = `event: message_start
data: {"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"x","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":9,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"I will"}}

`

// gone is a model's service that can't be had for a time, as services are: it refuses, breaks off, or says nothing of use.
type gone struct {
	behind http.Handler
	after  int // requests of a task's loop that it answers before
	span   time.Duration

	mu    sync.Mutex
	asked int
	from  time.Time
	tries int
}

func (g *gone) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	g.mu.Lock()
	if strings.Contains(string(body), `"name":"finish"`) { // a task's loop, not the Director's
		if g.asked++; g.asked > g.after && g.from.IsZero() {
			g.from = time.Now()
		}
	}
	down := !g.from.IsZero() && time.Since(g.from) < g.span
	if down {
		g.tries++
	}
	how := g.tries % 4
	g.mu.Unlock()
	switch {
	case !down:
		r.Body = io.NopCloser(bytes.NewReader(body))
		g.behind.ServeHTTP(w, r)
	case how == 0:
		http.Error(w, "<html>bad gateway</html>", http.StatusBadGateway)
	case how == 1:
		panic(http.ErrAbortHandler)
	case how == 3:
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, begins+"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n") // whoever asked may be gone
	default:
		http.Error(w, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, 529)
	}
}

// TestALongOutage: what a task wrote survives an outage of its model, however long within what is configured, and is published when
// the task has gone on. It takes ten seconds, or as long as CHOIR_OUTAGE says (10m was tried).
func TestALongOutage(t *testing.T) {
	t.Parallel()
	span := 10 * time.Second
	if s := os.Getenv("CHOIR_OUTAGE"); s != "" {
		var err error
		if span, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	}
	s := modelserver.New(modelserver.Script{Turns: join(
		director(delegate(object{"kind": "agent", "goal": "write a note", "tools": []any{"write", "bash"}, "verify": object{"profile": "none"}}), report("done", "Noted.")),
		worker(modelserver.Turn{Calls: call("write", object{"path": "workspace/note.txt", "content": "kept\n"})}, bash("cat workspace/note.txt"), finish("ok", "The note is there.")))}).Start()
	t.Cleanup(s.Close)
	to, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	g := &gone{behind: httputil.NewSingleHostReverseProxy(to), after: 1, span: span}
	front := httptest.NewServer(g)
	t.Cleanup(front.Close)
	in := choirtest.Start(t, choirtest.Options{Env: append(modelEnv(s, modelserver.Anthropic, newKey()),
		"ANTHROPIC_BASE_URL="+front.URL, fmt.Sprintf("CHOIR_MODELS_PATIENCE_S=%d", int((2*span+time.Minute).Seconds())))})
	res, err := in.Run(t.Context(), "prompt", "--wait", "--timeout", (2*span + 2*time.Minute).String(), "write a note")
	if err != nil || res.Code != 0 {
		t.Fatalf("%v %d %s %s (turns left: %v)", err, res.Code, res.Stdout, res.Stderr, s.Left())
	}
	if got := in.Must(t, "files", "cat", "workspace/note.txt"); got != "kept\n" {
		t.Errorf("the note is %q", got)
	}
	if started := eventsOf(t, in, "task.started"); len(started) != 1 {
		t.Errorf("the task was started %d times", len(started))
	}
	if w, r := eventsOf(t, in, "model.waiting"), eventsOf(t, in, "model.resumed"); len(w) == 0 || len(r) == 0 {
		t.Errorf("%d times it was told that the model is waited for, %d that it is there", len(w), len(r))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.tries < 2 || g.tries > 40+int(span/(20*time.Second)) {
		t.Errorf("the service was asked %d times in %s", g.tries, span)
	}
}
