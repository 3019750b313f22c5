package e2e_test

import (
	"bytes"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
	"choir.dev/choiros/test/modelserver"
)

// TestRunsAreTraced shows through the binary that a run's spans are told on the command line and by the API, and reach a
// collector with the same ids and without a word of what the run was about; that a collector which hangs holds no run up
// and is told of in the status; and that what it did not take comes after a restart, once.
func TestRunsAreTraced(t *testing.T) {
	t.Parallel()
	const secret = "canary-in-the-prompt"
	type post struct {
		key  string
		body []byte
	}
	posts, hang := make(chan post, 100), make(chan struct{})
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(r.Header.Get("Api-Key"), "hang") {
			select {
			case <-hang:
			case <-r.Context().Done():
			}
			return
		}
		posts <- post{r.Header.Get("Api-Key"), body}
	}))
	t.Cleanup(collector.Close)
	t.Cleanup(func() { close(hang) })
	write := func(text string) []modelserver.Turn {
		return turnsOf("associate", text, modelserver.Turn{Calls: call("write", object{"path": "artifacts/" + secret + ".md", "content": text + secret})}, finish("ok", secret))
	}
	s := modelserver.New(modelserver.Script{Turns: join(write("the first"), write("the second"))}).Start()
	t.Cleanup(s.Close)
	data := filepath.Join(choirtest.Scratch(t), "data")
	start := func(key string) *choirtest.Instance {
		return choirtest.Start(t, choirtest.Options{Data: data, Env: append(modelEnv(s, modelserver.Anthropic, newKey()), "CHOIR_LOOPS_DIRECT_WORDS=30",
			"OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL, "OTEL_EXPORTER_OTLP_HEADERS=api-key="+key)})
	}
	next := func() (spans []*tracepb.Span, body []byte) {
		t.Helper()
		select {
		case p := <-posts:
			var m tracepb.TracesData
			if err := proto.Unmarshal(p.body, &m); err != nil {
				t.Fatal(err)
			}
			return m.ResourceSpans[0].ScopeSpans[0].Spans, p.body
		case <-time.After(time.Minute):
			t.Fatal("no trace came")
			return nil, nil
		}
	}

	in := start("take")
	p := prompt(t, in, "the first "+secret)
	var told view.Trace
	in.JSON(t, &told, "run", "trace", p.Run, "--json")
	spans, body := next()
	var names, got, want []string
	for _, s := range spans {
		names, got = append(names, s.Name), append(got, hex.EncodeToString(s.SpanId)+" below "+hex.EncodeToString(s.ParentSpanId))
	}
	for _, s := range told.Spans {
		want = append(want, s.ID+" below "+s.Parent)
	}
	if !slices.Equal(got, want) || hex.EncodeToString(spans[0].TraceId) != told.ID || !told.Ended {
		t.Errorf("the collector has\n%s\nand the API\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, name := range []string{"invoke_workflow run", "task agent", "invoke_agent Associate", "execute_tool write", "verify", "publish"} {
		if !slices.Contains(names, name) {
			t.Errorf("there is no %s among %q", name, names)
		}
	}
	chats := 0
	for _, name := range names {
		if strings.HasPrefix(name, "chat ") {
			chats++
		}
	}
	if chats != 2 {
		t.Errorf("%d calls of a model in %q; want 2", chats, names)
	}
	if bytes.Contains(body, []byte("canary")) || bytes.Contains(body, []byte("artifacts")) {
		t.Errorf("what was sent says what the run was about:\n%q", body)
	}
	tree := in.Must(t, "run", "trace", p.Run)
	if !strings.Contains(tree, "    invoke_agent Associate") || !strings.Contains(tree, " tokens") || strings.Contains(tree, secret) {
		t.Errorf("choir run trace says\n%s", tree)
	}
	if r, err := in.Run(t.Context(), "run", "trace", "01890a5d-ac96-774b-bcce-b302099a8057"); err != nil || r.Code != 1 || !strings.Contains(r.Stderr, "there is no run") {
		t.Errorf("of no run: %+v, %v", r, err)
	}
	in.Stop(t)

	in = start("hang")
	if p = prompt(t, in, "the second "+secret); p.Status != "done" {
		t.Errorf("while the collector hangs: %+v", p)
	}
	choirtest.Eventually(t, time.Minute, "the status says that the collector is waited for", func() bool {
		status, code := statusOf(t, in)
		part := partOf(status.Computers[0], "tracing")
		return code == 0 && part.State == view.PartWaiting && strings.Contains(part.Reason, "can't be reached")
	})
	in.Stop(t)

	in = start("take")
	if spans, _ = next(); hex.EncodeToString(spans[0].TraceId) == told.ID {
		t.Error("the first run came again")
	}
	choirtest.Eventually(t, time.Minute, "what was taken is noted", func() bool {
		files, err := filepath.Glob(filepath.Join(data, "computers", "*", "traced"))
		if err != nil || len(files) != 1 {
			return false
		}
		b, err := os.ReadFile(files[0])
		return err == nil && len(b) > 1
	})
	usable(t, in)
	if len(posts) > 0 {
		t.Error("more came than runs")
	}
}
