package director_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/director"
)

// TestTheUsersNewestWordsSurviveACompaction: a Director is told what the user said once, so the words must be in what
// the log knows, the newest first.
func TestTheUsersNewestWordsSurviveACompaction(t *testing.T) {
	var wake director.WakeReply
	for i := range 4 {
		wake.Steering = append(wake.Steering, fmt.Sprintf("The user says (%d): begins %s ends", i+1, strings.Repeat("very ", 780)))
	}
	var compacted string
	turns := 0
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/wake":
			_ = json.NewEncoder(w).Encode(wake)
		case "/turns":
			var rec contract.TurnRecorded
			if err := json.NewDecoder(r.Body).Decode(&rec); err != nil {
				t.Error(err)
			}
			if rec.Compacted != nil {
				compacted = rec.Compacted.Text
			}
			_, _ = w.Write([]byte("{}"))
		case "/report":
			_, _ = w.Write([]byte("{}"))
		case "/model/turns":
			turns++
			part := contract.Part{Text: fmt.Sprint(turns, strings.Repeat(" word", 5000))}
			if compacted != "" {
				part = contract.Part{Call: &contract.ToolCall{ID: "r", Name: "report", Args: json.RawMessage(`{"status":"done","summary":"ok"}`)}}
			}
			_ = json.NewEncoder(w).Encode(contract.TurnChunk{Turn: &contract.Turn{Provider: "p", Model: "m", Stop: contract.StopEnd,
				Message: contract.Message{Role: contract.MessageAssistant, Parts: []contract.Part{part}}}})
		}
	}))
	defer host.Close()
	o := director.Options{Client: host.Client(), Base: host.URL}
	o.Limits.Nudges = 100
	rep := director.Direct(t.Context(), o, director.Message{Run: contract.NewID(), Prompt: "go", Tools: director.Declared(nil, nil)})
	if rep.Status != contract.RunDone {
		t.Fatalf("%+v", rep)
	}
	for _, n := range []int{3, 4} {
		if !strings.Contains(compacted, wake.Steering[n-1]) {
			t.Errorf("what the user said (%d) is not there:\n%s", n, compacted)
		}
	}
}
