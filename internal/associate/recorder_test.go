package associate

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/harness"
)

// TestWhatATurnIsAnsweredIsHeard: a compaction can't be answered with news, so what the host answered to the turn before it is heard
// with the next request.
func TestWhatATurnIsAnsweredIsHeard(t *testing.T) {
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		switch {
		case strings.HasPrefix(r.URL.Path, "/tools/"):
			w.Header().Set(harness.HeaderNews, "none")
			_, _ = io.WriteString(w, `{"ok":true,"output":"rain"}`)
		case r.URL.Path == "/turns" && strings.Contains(string(body), `"returns"`):
			_ = json.NewEncoder(w).Encode(TurnReply{Wake: &WakeReply{Notes: []string{"make it dark"}}})
		default:
			_, _ = io.WriteString(w, "{}")
		}
	}))
	defer host.Close()
	r := &recorder{host: harness.Host{Client: host.Client(), Base: host.URL}}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	turn := func(index int) {
		t.Helper()
		c := contract.ToolCall{ID: "c", Name: "weather", Args: json.RawMessage(`{}`)}
		rec := harness.Record{Index: index, Message: contract.Message{Role: contract.MessageAssistant, Parts: []contract.Part{{Call: &c}}}}
		must(r.record(t.Context(), rec))
		_, err := r.call(t.Context(), c)
		must(err)
		rec.Returns = []contract.Message{{Role: contract.MessageUser, Parts: []contract.Part{{Return: &contract.ToolReturn{ID: "c", Content: "rain"}}}}}
		must(r.record(t.Context(), rec))
	}
	turn(0)
	_, err := r.news(t.Context())
	must(err)
	must(r.flush(t.Context())) // no model could be asked for the summary, which would have taken the turn along
	must(r.record(t.Context(), harness.Record{Index: 1, Compacted: &contract.Compaction{Text: "x", Keeps: 1}}))
	turn(2)
	if notes, err := r.news(t.Context()); err != nil || !slices.Equal(notes, []string{"make it dark"}) {
		t.Errorf("heard %q, %v", notes, err)
	}
}
