package dispatch_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/associate"
	"choir.dev/choiros/internal/dispatch"
	"choir.dev/choiros/internal/dispatch/catalogue"
	"choir.dev/choiros/internal/tool"
	"choir.dev/choiros/internal/turnlines"
	"choir.dev/choiros/test/choirtest"
)

// TestATurnInFrontIsReadAsOne: a loop that is not ours puts something else in front of its calls and requests than the turn
// that goes there. It is refused, and neither is a call made nor a model asked for what stands behind it.
func TestATurnInFrontIsReadAsOne(t *testing.T) {
	h := newHouse(t)
	h.model.director = plan(m{"kind": "exec", "goal": "steps", "steps": []m{{"write": m{"path": "notes/b.txt", "content": "b"}}}})
	step := `{"overwrite":true,"path":"notes/b.txt","content":"b"}`
	turn := func(more string) string {
		return `{"attempt":1,"index":0,"message":{"role":"assistant","parts":[{"text":"hi"}]},"stop":"end","usage":{"wall_ms":0,"tool_calls":0,"tokens_in":0,"tokens_out":0,"cost_usd":0}` + more + `}`
	}
	over := turn(`,"returns":[{"role":"user","parts":[{"text":"x"}]}]`)
	tries := map[string]struct{ path, size, front string }{
		"no number":            {"/tools/write", "x", ""},
		"nothing":              {"/tools/write", "0", ""},
		"less than nothing":    {"/tools/write", "-1", ""},
		"more than there is":   {"/tools/write", "4000", ""},
		"more than a turn has": {"/tools/write", strconv.Itoa(contract.MaxTurn + 1), ""},
		"more than a number":   {"/tools/write", "99999999999999999999", ""},
		"no turn":              {"/tools/write", "2", "{}x"},
		"a field too many":     {"/tools/write", "", turn(`,"budget":1`)},
		"one that is over":     {"/tools/write", "", over},
		"a summary":            {"/tools/write", "", turn(`,"compacted":{"text":"x","keeps":1}`)},
		"one without returns":  {"/model/turns", "", turn("")},
		"no turn, to a model":  {"/model/turns", "2", "{}x"},
	}
	got := map[string]int{}
	h.boxes.evil = func(host *http.Client) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var msg associate.Message
			if err := json.NewDecoder(r.Body).Decode(&msg); err != nil {
				t.Error(err)
			}
			ask := func(name, path, size, body string) {
				req, err := http.NewRequest(http.MethodPost, "http://host"+path, strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Choir-Fence", msg.Fence)
				req.Header.Set("Choir-Call", "call-"+strings.ReplaceAll(name, " ", "-"))
				req.Header.Set("Choir-Turn", size)
				resp, err := host.Do(req)
				if err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
				resp.Body.Close()
				got[name] = resp.StatusCode
			}
			for name, x := range tries {
				size := x.size
				if size == "" {
					size = strconv.Itoa(len(x.front))
				}
				ask(name, x.path, size, x.front+step)
			}
			ask("a turn", "/tools/write", strconv.Itoa(len(turn(""))), turn("")+step)
			fmt.Fprintln(w, `{"end":{"status":"ok","summary":"all good","usage":{"tool_calls":1,"tokens_in":0,"wall_ms":0,"tokens_out":0,"cost_usd":0}}}`)
		})
	}
	h.report(h.submit("go"))
	h.quiet()
	for name := range tries {
		if got[name] != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d", name, got[name])
		}
	}
	var stored []string
	for _, e := range must(h.log.Read(t.Context(), 0, 1000)) {
		if e.Task != "" && (e.Type == "turn.recorded" || e.Type == "tool.called") {
			stored = append(stored, e.Type)
		}
	}
	if got["a turn"] != http.StatusOK || !slices.Equal(stored, []string{"turn.recorded", "tool.called"}) {
		t.Errorf("a turn and its call: %d, stored are %q", got["a turn"], stored)
	}
	for _, req := range h.model.seen {
		if len(req.Messages) == 0 {
			t.Error("a model was asked")
		}
	}
}

// TestOfATurnThatIsAnnouncedNothingIsKeptReady: a box that announces long turns and sends none takes no memory of the host.
func TestOfATurnThatIsAnnouncedNothingIsKeptReady(t *testing.T) {
	h := newHouse(t)
	h.model.director = plan(agent("Do it"))
	const many = 32
	var grew int64
	h.boxes.evil = func(host *http.Client) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var msg associate.Message
			if err := json.NewDecoder(r.Body).Decode(&msg); err != nil {
				t.Error(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			var asked sync.WaitGroup
			var bodies []*io.PipeWriter
			for i := range many {
				body, end := io.Pipe()
				bodies = append(bodies, end)
				req := must(http.NewRequest(http.MethodPost, "http://host"+[]string{"/model/turns", "/tools/bash"}[i%2], body))
				req.Header.Set("Choir-Fence", msg.Fence)
				req.Header.Set("Choir-Turn", strconv.Itoa(contract.MaxTurn))
				asked.Go(func() {
					if resp, err := host.Do(req); err == nil {
						resp.Body.Close()
					}
				})
				if _, err := end.Write([]byte("{")); err != nil {
					t.Error(err)
				}
			}
			for range 20 { // they arrive
				time.Sleep(10 * time.Millisecond)
				runtime.ReadMemStats(&after)
				grew = max(grew, int64(after.TotalAlloc)-int64(before.TotalAlloc))
			}
			for _, end := range bodies {
				end.CloseWithError(io.ErrUnexpectedEOF)
			}
			asked.Wait()
			fmt.Fprintln(w, `{"end":{"status":"ok","summary":"all good","usage":{"tool_calls":0,"tokens_in":0,"wall_ms":0,"tokens_out":0,"cost_usd":0}}}`)
		})
	}
	h.report(h.submit("go"))
	h.quiet()
	if grew > many*contract.MaxTurn/4 {
		t.Errorf("%d bytes were taken for %d turns of which there was one byte", grew, many)
	}
}

// TestWhatIsSaidDuringACallIsInTheNextRequest: a loop asks for news only where the host says with a call that there is some, so what
// the user says while a call is made has to be told with it, and once.
func TestWhatIsSaidDuringACallIsInTheNextRequest(t *testing.T) {
	h := newHouse(t)
	var run atomic.Value
	calls := 0
	h.tune = func(o *dispatch.Options) {
		o.Tools = append(o.Tools, catalogue.HostTool{Tool: weather(), Call: func(ctx context.Context, _ catalogue.HostCall) (tool.Result, error) {
			if calls++; calls == 2 {
				if _, err := h.d.Steer(ctx, contract.Person("u"), run.Load().(string), "make it dark"); err != nil {
					t.Error(err)
				}
			}
			return tool.Result{OK: true, Output: "rain"}, nil
		}})
	}
	h.sleep()
	h.wake()
	ask := func(id string) contract.Part { return use(id, "weather", m{"town": id}) }
	h.model.gate = func(contract.ActorKind, int) {
		choirtest.Eventually(t, 10*time.Second, "the run has its name", func() bool { return run.Load() != nil })
	}
	h.model.director = plan(m{"kind": "agent", "goal": "Look", "tools": []string{"weather"}, "verify": m{"profile": "none"}})
	h.model.associate = steps(ask("c1"), ask("c2"), ask("c3"), ask("c4"))
	run.Store(h.submit("go"))
	h.report(run.Load().(string))
	h.quiet()
	h.model.mu.Lock()
	defer h.model.mu.Unlock()
	var told []int
	for _, req := range h.model.seen {
		if slices.ContainsFunc(req.Tools, func(s contract.ToolSpec) bool { return s.Name == "finish" }) {
			told = append(told, strings.Count(string(must(json.Marshal(req.Messages))), "make it dark"))
		}
	}
	if !slices.Equal(told, []int{0, 0, 1, 1, 1}) {
		t.Errorf("told how often, in each request: %v", told)
	}
}

// TestWhatIsSaidBeforeARequestIsNews: the answer to a request with a turn in front of it says no news, so that what the user said
// since the call of that turn is still to be told with the next call.
func TestWhatIsSaidBeforeARequestIsNews(t *testing.T) {
	h := newHouse(t)
	h.has(weather(), "rain")
	h.model.director = plan(m{"kind": "agent", "goal": "Look", "tools": []string{"weather"}, "verify": m{"profile": "none"}})
	h.model.associate = steps()
	run := make(chan string, 1)
	var news []string
	h.boxes.evil = func(host *http.Client) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var msg associate.Message
			if err := json.NewDecoder(r.Body).Decode(&msg); err != nil {
				t.Error(err)
			}
			ask := func(path, call string, turn any, body string) string {
				front := ""
				if turn != nil {
					front = string(must(json.Marshal(turn)))
				}
				req := must(http.NewRequest(http.MethodPost, "http://host"+path, strings.NewReader(front+body)))
				req.Header.Set("Choir-Fence", msg.Fence)
				req.Header.Set("Choir-Call", call)
				if turn != nil {
					req.Header.Set("Choir-Turn", strconv.Itoa(len(front)))
				}
				resp := must(host.Do(req))
				defer resp.Body.Close()
				if resp.StatusCode != http.StatusOK {
					t.Errorf("%s: %s", path, resp.Status)
				}
				return resp.Header.Get("Choir-News")
			}
			turn := func(index int, call string, returned bool) contract.TurnRecorded {
				out := contract.TurnRecorded{Attempt: 1, Index: index, Stop: contract.StopToolUse, Message: contract.Message{Role: contract.MessageAssistant, Parts: parts(use(call, "weather", m{"town": call}))}}
				if returned {
					out.Returns = []contract.Message{{Role: contract.MessageUser, Parts: []contract.Part{{Return: &contract.ToolReturn{ID: call, Content: "rain"}}}}}
				}
				return out
			}
			ask("/wake", "", nil, "{}")
			news = append(news, ask("/tools/weather", "c1", turn(0, "c1", false), `{"town":"c1"}`))
			if _, err := h.d.Steer(r.Context(), contract.Person("u"), <-run, "make it dark"); err != nil {
				t.Error(err)
			}
			ask("/model/turns", "", turn(0, "c1", true), string(must(turnlines.Encode(contract.TurnRequest{Messages: []contract.Message{{Role: contract.MessageUser, Parts: []contract.Part{{Text: "go on"}}}}}))))
			news = append(news, ask("/tools/weather", "c2", turn(1, "c2", false), `{"town":"c2"}`))
			fmt.Fprintln(w, `{"end":{"status":"ok","summary":"all good","usage":{"tool_calls":2,"tokens_in":0,"wall_ms":0,"tokens_out":0,"cost_usd":0}}}`)
		})
	}
	run <- h.submit("go")
	h.quiet()
	if !slices.Equal(news, []string{"none", ""}) {
		t.Errorf("said of news: %q", news)
	}
}

// TestWhatDidNotFitIsToldWithTheNextRequest: what the user said at once may be more than one request tells.
func TestWhatDidNotFitIsToldWithTheNextRequest(t *testing.T) {
	h := newHouse(t)
	var run atomic.Value
	calls := 0
	h.tune = func(o *dispatch.Options) {
		o.Tools = append(o.Tools, catalogue.HostTool{Tool: weather(), Call: func(ctx context.Context, _ catalogue.HostCall) (tool.Result, error) {
			if calls++; calls == 2 {
				for i := range 6 {
					if _, err := h.d.Steer(ctx, contract.Person("u"), run.Load().(string), strings.Repeat("so ", 1300)+fmt.Sprintf("word-%d", i)); err != nil {
						t.Error(err)
					}
				}
			}
			return tool.Result{OK: true, Output: "rain"}, nil
		}})
	}
	h.sleep()
	h.wake()
	ask := func(id string) contract.Part { return use(id, "weather", m{"town": id}) }
	h.model.gate = func(contract.ActorKind, int) {
		choirtest.Eventually(t, 10*time.Second, "the run has its name", func() bool { return run.Load() != nil })
	}
	h.model.director = plan(m{"kind": "agent", "goal": "Look", "tools": []string{"weather"}, "verify": m{"profile": "none"}})
	h.model.associate = steps(ask("c1"), ask("c2"), ask("c3"), ask("c4"))
	run.Store(h.submit("go"))
	h.report(run.Load().(string))
	h.quiet()
	h.model.mu.Lock()
	defer h.model.mu.Unlock()
	said := ""
	for _, req := range h.model.seen {
		if slices.ContainsFunc(req.Tools, func(s contract.ToolSpec) bool { return s.Name == "finish" }) {
			said += string(must(json.Marshal(req.Messages)))
		}
	}
	for i := range 6 {
		if word := fmt.Sprintf("word-%d", i); !strings.Contains(said, word) {
			t.Errorf("%s was never told", word)
		}
	}
}

// TestTheLastTurnIsRecordedWithItsReturns: a loop that ends with no further request tells of its last turn by itself.
func TestTheLastTurnIsRecordedWithItsReturns(t *testing.T) {
	h := newHouse(t)
	h.has(weather(), "rain")
	h.model.director = plan(m{"kind": "agent", "goal": "Look", "tools": []string{"weather"}, "budget": m{"tool_calls": 2}, "verify": m{"profile": "none"}})
	h.model.associate = steps(use("c1", "weather", m{"town": "a"}), use("c2", "weather", m{"town": "b"}), use("c3", "weather", m{"town": "c"}))
	h.report(h.submit("go"))
	h.quiet()
	var returned []string
	for _, p := range h.events("turn.recorded") {
		for _, r := range p.(*contract.TurnRecorded).Returns {
			for _, part := range r.Parts {
				if part.Return != nil && part.Return.Content == "rain" {
					returned = append(returned, part.Return.ID)
				}
			}
		}
	}
	if !slices.Equal(returned, []string{"c1", "c2"}) {
		t.Errorf("recorded are the returns of %q", returned)
	}
}
