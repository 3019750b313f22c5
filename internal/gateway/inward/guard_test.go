package inward_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/gateway/inward"
	"choir.dev/choiros/test/choirtest"
)

var paths = map[string]string{
	"/v1/messages":              `{"model":"x/dearest","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`,
	"/v1/messages/count_tokens": `{"model":"x/dearest","messages":[{"role":"user","content":"hi"}]}`,
	"/v1/chat/completions":      `{"model":"x/dearest","messages":[{"role":"user","content":"hi"}]}`,
	"/v1/responses":             `{"model":"x/dearest","input":"hi"}`,
}

// TestOnlyTheBoxsTokenIsAnswered: a token of another box, one that is nearly right, or none is refused
// before anything else is looked at.
func TestOnlyTheBoxsTokenIsAnswered(t *testing.T) {
	p := &played{}
	url := serve(t, p, nil)
	p.answers(turnOf(contract.StopEnd, contract.Part{Text: "ok"}))
	for path, body := range paths {
		for what, headers := range map[string][]string{
			"no token":      {"Authorization", ""},
			"another box's": {"Authorization", "Bearer choir-box-of-another"},
			"nearly right":  {"Authorization", "Bearer " + token + "x"},
			"another kind":  {"Authorization", "Basic " + token},
			"another key":   {"Authorization", "", "X-Api-Key", token[1:]},
		} {
			status, _, out := post(t, url+path, body, headers...)
			if status == http.StatusOK {
				t.Errorf("a box is answered with %s at %s: %s", what, path, out)
			} else if status != http.StatusUnauthorized || strings.Contains(out, token) {
				t.Errorf("%s at %s: %d %s", what, path, status, out)
			}
		}
		if status, _, out := post(t, url+path, body, "Authorization", "", "X-Api-Key", token); status != http.StatusOK {
			t.Errorf("the box's token as a key at %s: %d %s", path, status, out)
		}
	}
	if status, _, out := post(t, url+"/v1/files", "{}"); status != http.StatusNotFound || !strings.Contains(out, "/v1/messages") {
		t.Errorf("another address: %d %s", status, out)
	}
}

// TestTheHostsModelAnswers whatever a program names.
func TestTheHostsModelAnswers(t *testing.T) {
	p := &played{}
	url := serve(t, p, nil)
	p.answers(turnOf(contract.StopEnd, contract.Part{Text: "ok"}))
	for path, body := range paths {
		if strings.Contains(path, "count") {
			continue
		}
		if status, _, out := post(t, url+path, body); status != http.StatusOK || !strings.Contains(out, `"the/hosts"`) {
			t.Fatalf("%s: %d %s", path, status, out)
		}
		if m := p.last(t).Model; m != "" {
			t.Errorf("a program chose the model %q", m)
		}
		if s := p.scopes[len(p.scopes)-1]; s.Model != "the/hosts" || s.Task == "" || s.Run == "" {
			t.Errorf("the call is made for %+v", s)
		}
	}
}

// TestSoManyCallsOfABoxAtATime: further ones wait for their turn.
func TestSoManyCallsOfABoxAtATime(t *testing.T) {
	p := &played{}
	url := serve(t, p, nil)
	var open, most atomic.Int64
	release := make(chan struct{})
	p.turn = func(ctx context.Context, _ contract.TurnRequest, _ func(string)) (contract.Turn, error) {
		n := open.Add(1)
		defer open.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		select {
		case <-release:
		case <-ctx.Done():
		}
		return turnOf(contract.StopEnd, contract.Part{Text: "ok"}), nil
	}
	const calls = 12
	statuses := make([]int, calls)
	var all sync.WaitGroup
	for i := range calls {
		all.Go(func() { statuses[i], _, _ = post(t, url+"/v1/messages", paths["/v1/messages"]) })
	}
	choirtest.Eventually(t, 10*time.Second, "calls are under way", func() bool { return open.Load() >= 4 })
	time.AfterFunc(200*time.Millisecond, func() { close(release) })
	all.Wait()
	if most.Load() > 4 {
		t.Errorf("a box has %d calls open at a time", most.Load())
	}
	for i, s := range statuses {
		if s != http.StatusOK {
			t.Errorf("call %d: %d", i, s)
		}
	}
}

// TestNoCallWhileARunIsPaused: and its end ends the calls that are under way.
func TestNoCallWhileARunIsPaused(t *testing.T) {
	p := &played{}
	var no error
	url := serve(t, p, func(o *inward.Options) { o.Admit = func(context.Context) error { return no } })
	p.answers(turnOf(contract.StopEnd, contract.Part{Text: "ok"}))
	no = fault.New("", fault.Unavailable, "", errors.New("the run is paused"))
	status, h, out := post(t, url+"/v1/messages", paths["/v1/messages"])
	if status != http.StatusServiceUnavailable || !strings.Contains(out, "paused") || h.Get("X-Should-Retry") != "true" {
		t.Errorf("%d %s", status, out)
	}
	if len(p.requests) > 0 {
		t.Error("a paused run's call was made")
	}
	no = nil
	ended := make(chan error, 1)
	p.turn = func(ctx context.Context, _ contract.TurnRequest, _ func(string)) (contract.Turn, error) {
		<-ctx.Done()
		ended <- ctx.Err()
		return contract.Turn{}, ctx.Err()
	}
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		_, _ = wires[0].ask(ctx, url, true)
	}()
	choirtest.Eventually(t, 10*time.Second, "the call is under way", func() bool { p.mu.Lock(); defer p.mu.Unlock(); return len(p.requests) == 1 })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-asked
}

// TestRequestsAreBounded before they are understood.
func TestRequestsAreBounded(t *testing.T) {
	p := &played{}
	url := serve(t, p, nil)
	p.answers(turnOf(contract.StopEnd, contract.Part{Text: "ok"}))
	many := func(n int, one string) string { return strings.TrimSuffix(strings.Repeat(one+",", n), ",") }
	for what, c := range map[string]struct {
		body   string
		status int
	}{
		"8 MiB":         {`{"messages":[{"role":"user","content":"` + strings.Repeat("x", 8<<20) + `"}]}`, 413},
		"messages":      {`{"max_tokens":1,"messages":[` + many(2001, `{"role":"user","content":"x"}`) + `]}`, 400},
		"tools":         {`{"max_tokens":1,"messages":[{"role":"user","content":"x"}],"tools":[` + many(101, `{"name":"a"}`) + `]}`, 400},
		"blocks":        {`{"max_tokens":1,"messages":[{"role":"user","content":[` + many(1001, `{"type":"text","text":"x"}`) + `]}]}`, 400},
		"no messages":   {`{"max_tokens":1,"messages":[]}`, 400},
		"no JSON":       {`{"messages":`, 400},
		"no object":     {`[]`, 400},
		"no bytes":      {``, 400},
		"a deep schema": {`{"max_tokens":1,"messages":[{"role":"user","content":"x"}],"tools":[{"name":"a","input_schema":` + strings.Repeat("[", 20000) + `}]}`, 400},
	} {
		if status, _, out := post(t, url+"/v1/messages", c.body); status != c.status || !strings.Contains(out, `"type":"error"`) {
			t.Errorf("%s: %d %.300s", what, status, out)
		}
	}
	if len(p.requests) > 0 {
		t.Error("one of them reached the gateway")
	}
}
