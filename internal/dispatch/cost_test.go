package dispatch_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/associate"
	"choir.dev/choiros/internal/dispatch"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/turnlines"
	"choir.dev/choiros/test/choirtest"
)

// TestWhatACallCostIsStoredBeforeWhatComesOfIt: nobody waits for the disk because of what an Associate's call of the model cost, and in
// the log it still stands in front of the turn and of the call that the turn makes.
func TestWhatACallCostIsStoredBeforeWhatComesOfIt(t *testing.T) {
	h := newHouse(t)
	h.model.waits = func(s ports.ModelScope) {
		if s.Role != contract.KindAssociate {
			if s.Hold != nil {
				t.Error("a Director's turn is stored before it acts, and what it cost with it")
			}
			return
		}
		if err := s.Hold(contract.Draft{Actor: contract.System(), Type: "usage.metered", Run: s.Run, Task: s.Task, Data: contract.UsageMetered{
			Call: contract.NewID(), Role: string(s.Role), Provider: "script", Model: "one", Outcome: "ok", Usage: contract.Usage{TokensIn: 3, TokensOut: 2}}}); err != nil {
			t.Error(err)
		}
	}
	h.model.director = plan(agent("Do it"))
	h.model.associate = steps(use("c1", "write", m{"path": "workspace/project/new.txt", "content": "x"}), use("c2", "read", m{"path": "workspace/project/new.txt"}))
	run, _, err := h.d.Submit(t.Context(), dispatch.Prompt{By: contract.Person("u"), Text: "go"})
	if err != nil {
		t.Fatal(err)
	}
	h.report(run)
	var got []string
	for _, e := range must(h.log.Read(t.Context(), 0, 1000)) {
		if e.Run == run && e.Task != "" && slices.Contains([]string{"usage.metered", "turn.recorded", "tool.called"}, e.Type) {
			got = append(got, e.Type)
		}
	}
	want := []string{"usage.metered", "turn.recorded", "tool.called", "turn.recorded", "usage.metered", "turn.recorded", "tool.called", "turn.recorded", "usage.metered", "turn.recorded"}
	if len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
		t.Errorf("stored were %q", got)
	}
}

// TestWhatACallCostOutlivesWhatComesOfIt: it is stored also where what the loop said of the answer can't be, or where the computer goes to
// sleep before the loop said anything.
func TestWhatACallCostOutlivesWhatComesOfIt(t *testing.T) {
	for name, then := range map[string]func(h *house, ask func(path, body string), r *http.Request){
		"what can't be stored": func(_ *house, ask func(path, body string), _ *http.Request) {
			// Encoded for the log, each of these takes six bytes.
			ask("/turns", `{"attempt":1,"index":0,"message":{"role":"assistant","parts":[{"text":"`+strings.Repeat("<", 3<<20)+`"}]},"stop":"end","usage":{"wall_ms":0,"tool_calls":0,"tokens_in":0,"tokens_out":0,"cost_usd":0}}`)
		},
		"what is not said": func(h *house, _ func(path, body string), r *http.Request) {
			h.sent <- "asked"
			<-r.Context().Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			var cost atomic.Value
			h.model.waits = func(s ports.ModelScope) {
				if s.Role != contract.KindAssociate || cost.Load() != nil {
					return
				}
				d := contract.Draft{ID: contract.NewID(), Actor: contract.System(), Type: "usage.metered", Run: s.Run, Task: s.Task, Data: contract.UsageMetered{
					Call: contract.NewID(), Role: string(s.Role), Provider: "script", Model: "one", Outcome: "ok", Usage: contract.Usage{TokensIn: 3, TokensOut: 2}}}
				if err := s.Hold(d); err != nil {
					t.Error(err)
				}
				cost.Store(d.ID)
			}
			h.boxes.evil = func(host *http.Client) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					var msg associate.Message
					if err := json.NewDecoder(r.Body).Decode(&msg); err != nil {
						t.Error(err)
					}
					ask := func(path, body string) {
						req := must(http.NewRequest(http.MethodPost, "http://host"+path, strings.NewReader(body)))
						req.Header.Set("Choir-Fence", msg.Fence)
						if resp, err := host.Do(req); err == nil {
							resp.Body.Close()
						}
					}
					ask("/model/turns", string(must(turnlines.Encode(contract.TurnRequest{Messages: []contract.Message{{Role: contract.MessageUser, Parts: []contract.Part{{Text: "go on"}}}}}))))
					then(h, ask, r)
					fmt.Fprintln(w, `{"end":{"status":"ok","summary":"all good","usage":{"tool_calls":0,"tokens_in":0,"wall_ms":0,"tokens_out":0,"cost_usd":0}}}`)
				})
			}
			h.model.director = plan(agent("Do it"))
			h.model.associate = steps()
			run := h.submit("go")
			if name == "what is not said" {
				choirtest.Eventually(t, 20*time.Second, "the model was asked", func() bool { return <-h.sent == "asked" })
				h.sleep()
				h.wake()
			} else {
				h.report(run)
				h.quiet()
			}
			stored := 0
			for _, e := range must(h.log.Read(t.Context(), 0, 1000)) {
				if e.ID == cost.Load() {
					stored++
				}
			}
			if stored != 1 {
				t.Errorf("it was stored %d times\n%s", stored, h.story())
			}
		})
	}
}
