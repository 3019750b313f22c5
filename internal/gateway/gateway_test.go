package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/gateway"
	"choir.dev/choiros/test/modelserver"
)

const canary = "sk-canary-4f1d0c9be2774a86"

// meter keeps the usage that the gateway records.
type meter struct {
	mu  sync.Mutex
	all []contract.UsageMetered
	err error
}

func (m *meter) record(_ context.Context, _ gateway.Scope, u contract.UsageMetered) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = append(m.all, u)
	return m.err
}

func (m *meter) taken() []contract.UsageMetered {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]contract.UsageMetered(nil), m.all...)
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

var wires = []modelserver.Wire{modelserver.Anthropic, modelserver.OpenAI, modelserver.Responses, modelserver.Bedrock}

// play serves a script in one wire format and returns a gateway that uses it.
func play(t *testing.T, wire modelserver.Wire, change func(*gateway.Options), turns ...modelserver.Turn) (*gateway.Gateway, *modelserver.Server, *meter) {
	t.Helper()
	// The variables that the vendors' SDKs read must have no effect.
	for k, v := range map[string]string{"ANTHROPIC_API_KEY": "env-key-must-not-be-used", "ANTHROPIC_AUTH_TOKEN": "env-token", "OPENAI_API_KEY": "env-key-must-not-be-used",
		"ANTHROPIC_BASE_URL": "http://127.0.0.1:1", "OPENAI_BASE_URL": "http://127.0.0.1:1", "OPENAI_ORG_ID": "env-org"} {
		t.Setenv(k, v)
	}
	s := modelserver.New(modelserver.Script{Turns: turns}).Start()
	t.Cleanup(s.Close)
	m := &meter{}
	opt := gateway.Options{
		Keys:         func(context.Context, string) (string, error) { return canary, nil },
		LocalBaseURL: "none", Logger: quiet(), Meter: m.record,
		Limits: gateway.Limits{Backoff: time.Millisecond, MaxRetryGap: time.Second, FirstByte: 20 * time.Second, Idle: 20 * time.Second, Wall: 60 * time.Second},
	}
	switch wire {
	case modelserver.Anthropic:
		opt.AnthropicBaseURL, opt.Default = s.URL(), "anthropic/claude-sonnet-4-6"
	case modelserver.Bedrock:
		opt.Providers, opt.Default = map[string]gateway.Service{"bedrock": {BaseURL: s.URL(), Region: modelserver.AWSRegion}}, "bedrock/global.anthropic.claude-sonnet-4-6"
	case modelserver.Responses:
		opt.Providers, opt.Default = map[string]gateway.Service{"openai": {BaseURL: s.OpenAIURL(), Wire: gateway.WireResponses}}, "openai/gpt-5.4"
	default:
		opt.OpenAIBaseURL, opt.Default = s.OpenAIURL(), "openai/gpt-5.4"
	}
	if change != nil {
		change(&opt)
	}
	g, err := gateway.New(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	return g, s, m
}

func scope() gateway.Scope {
	return gateway.Scope{CID: contract.NewCID(), Run: contract.NewID(), Role: "associate"}
}

func say(text string) contract.TurnRequest {
	return contract.TurnRequest{System: "be brief", MaxTokens: 500,
		Messages: []contract.Message{{Role: contract.MessageUser, Parts: []contract.Part{{Text: text}}}},
		Tools:    []contract.ToolSpec{{Name: "read", Description: "d", Schema: json.RawMessage(`{"type":"object","additionalProperties":false,"required":["path"],"properties":{"path":{"type":"string"}}}`)}, {Name: "finish", Schema: json.RawMessage(`{"type":"object"}`)}}}
}

func each(t *testing.T, f func(t *testing.T, wire modelserver.Wire)) {
	for _, w := range wires {
		t.Run(string(w), func(t *testing.T) { f(t, w) })
	}
}

func TestTurnInEachFormat(t *testing.T) {
	each(t, func(t *testing.T, wire modelserver.Wire) {
		g, s, m := play(t, wire, nil, modelserver.Turn{
			Text:  "I'll look at the file first — ünïcode too.",
			Calls: []modelserver.Call{{ID: "c_1", Name: "read", Args: modelserver.Args(map[string]any{"path": "a/b.txt"})}},
			Usage: &modelserver.Usage{In: 1000, Out: 100, CacheRead: 2000},
		})
		var deltas []string
		req := say("hello")
		req.Messages = append(req.Messages,
			contract.Message{Role: contract.MessageAssistant, Parts: []contract.Part{{Text: "ok"}, {Call: &contract.ToolCall{ID: "old", Name: "read", Args: json.RawMessage(`"not an object"`)}}}},
			contract.Message{Role: contract.MessageUser, Parts: []contract.Part{{Return: &contract.ToolReturn{ID: "old", Content: "no such file", IsError: true}}}})
		turn, err := g.Turn(t.Context(), scope(), req, func(d string) { deltas = append(deltas, d) })
		if err != nil {
			t.Fatal(err)
		}
		if got := turn.Message.Parts[0].Text; got != "I'll look at the file first — ünïcode too." || strings.Join(deltas, "") != got || len(deltas) < 2 {
			t.Errorf("text %q, deltas %q", got, deltas)
		}
		call := turn.Message.Parts[1].Call
		if call.Name != "read" || call.ID != "c_1" || string(call.Args) != `{"path":"a/b.txt"}` {
			t.Errorf("call %+v", call)
		}
		if turn.Stop != contract.StopToolUse {
			t.Errorf("stop %q", turn.Stop)
		}
		wantCost := 1000*3.0/1e6 + 2000*0.3/1e6 + 100*15.0/1e6
		if wire == modelserver.OpenAI || wire == modelserver.Responses {
			wantCost = 1000*2.5/1e6 + 2000*0.25/1e6 + 100*15.0/1e6
		}
		if u := turn.Usage; u.TokensIn != 3000 || u.TokensOut != 100 || u.CostUSD < wantCost*0.999 || u.CostUSD > wantCost*1.001 {
			t.Errorf("usage %+v, want cost %v", u, wantCost)
		}
		if all := m.taken(); len(all) != 1 || all[0].Outcome != "ok" || all[0].Estimated || all[0].Usage != turn.Usage || all[0].Validate() != nil {
			t.Errorf("metered %+v", all)
		}
		reqs := s.Requests()
		if len(reqs) != 1 || reqs[0].Key != canary || !reqs[0].Stream || reqs[0].Role != "associate" {
			t.Fatalf("requests %+v", reqs)
		}
		for _, secret := range []string{"env-key", "env-token", "env-org"} {
			for k, v := range reqs[0].Header {
				if strings.Contains(strings.Join(v, ","), secret) {
					t.Errorf("header %s carries %q from the environment", k, secret)
				}
			}
		}
		body := string(reqs[0].Body)
		if (wire == modelserver.Anthropic || wire == modelserver.Bedrock) && strings.Count(body, `"cache_control"`) != 4 {
			t.Errorf("want cache breakpoints at the system prompt, the last tool and the user's last two messages: %s", body)
		}
		if !strings.Contains(body, "not an object") || !strings.Contains(body, "no such file") || !strings.Contains(body, "invalid_arguments") {
			t.Errorf("history is not complete: %s", body)
		}
	})
}

func TestModelThatMisbehaves(t *testing.T) {
	fault := func(kind string) modelserver.Turn { return modelserver.Turn{Fault: &modelserver.Fault{Kind: kind}} }
	status := func(n int, after string) modelserver.Turn {
		return modelserver.Turn{Text: "not now", Fault: &modelserver.Fault{Kind: "status", Status: n, RetryAfter: after}}
	}
	good := modelserver.Turn{Text: "fine"}
	for _, c := range []struct {
		name    string
		turns   []modelserver.Turn
		code    string // "" means a successful turn
		retries int
		check   func(t *testing.T, turn contract.Turn)
	}{
		{name: "429 then good", turns: []modelserver.Turn{status(429, "0.01"), good}, retries: 1},
		{name: "500 twice then good", turns: []modelserver.Turn{status(500, ""), status(529, ""), good}, retries: 2},
		{name: "always 500", turns: []modelserver.Turn{{Text: "down", Repeat: true, Fault: &modelserver.Fault{Kind: "status", Status: 500}}}, code: "unavailable", retries: 3},
		{name: "429 for an hour", turns: []modelserver.Turn{status(429, "3600"), good}, code: "rate_limited"},
		{name: "400 is not repeated", turns: []modelserver.Turn{status(400, ""), good}, code: "invalid"},
		{name: "404", turns: []modelserver.Turn{status(404, ""), good}, code: "no_model"},
		{name: "hang then good", turns: []modelserver.Turn{fault("hang"), good}, retries: 1},
		{name: "garbage then good", turns: []modelserver.Turn{fault("garbage"), good}, retries: 1},
		{name: "cut then good", turns: []modelserver.Turn{fault("cut"), good}, retries: 1},
		{name: "stall then good", turns: []modelserver.Turn{fault("stall"), good}, retries: 1},
		{name: "10 MB of text", turns: []modelserver.Turn{fault("big_text")}, check: func(t *testing.T, turn contract.Turn) {
			if turn.Stop != contract.StopTruncate || len(turn.Message.Parts[0].Text) > 1<<20 {
				t.Errorf("stop %q, %d bytes", turn.Stop, len(turn.Message.Parts[0].Text))
			}
		}},
		{name: "endless", turns: []modelserver.Turn{fault("endless")}, check: func(t *testing.T, turn contract.Turn) {
			if turn.Stop != contract.StopTruncate || !strings.HasPrefix(turn.Message.Parts[0].Text, "begin and on") {
				t.Errorf("stop %q", turn.Stop)
			}
		}},
		{name: "a thousand calls", turns: []modelserver.Turn{fault("many_calls")}, check: func(t *testing.T, turn contract.Turn) {
			if turn.Stop != contract.StopTruncate || len(turn.Message.Parts) != 64 {
				t.Errorf("stop %q, %d parts", turn.Stop, len(turn.Message.Parts))
			}
		}},
		{name: "a name of a million letters", turns: []modelserver.Turn{fault("long_name")}, check: func(t *testing.T, turn contract.Turn) {
			if n := len(turn.Message.Parts[0].Call.Name); n != 64 {
				t.Errorf("name has %d letters", n)
			}
		}},
		{name: "arguments that are not JSON", turns: []modelserver.Turn{{Calls: []modelserver.Call{{Name: "read", Raw: `{"path": "a`}}}}, check: func(t *testing.T, turn contract.Turn) {
			var s string
			if err := json.Unmarshal(turn.Message.Parts[0].Call.Args, &s); err != nil || s != `{"path": "a` {
				t.Errorf("args %s", turn.Message.Parts[0].Call.Args)
			}
		}},
		{name: "odd name and id", turns: []modelserver.Turn{{Calls: []modelserver.Call{{ID: "a b\x00", Name: "rm -rf"}, {ID: "a b\x00", Name: ""}}}}, check: func(t *testing.T, turn contract.Turn) {
			a, b := turn.Message.Parts[0].Call, turn.Message.Parts[1].Call
			if a.Name != "rm_-rf" || b.Name != "unnamed_2" || a.ID == b.ID || strings.Contains(a.ID, " ") {
				t.Errorf("%+v %+v", a, b)
			}
		}},
		{name: "no usage", turns: []modelserver.Turn{{Text: "hello there", Usage: &modelserver.Usage{Omit: true}}}, check: func(t *testing.T, turn contract.Turn) {
			if turn.Usage.TokensIn == 0 || turn.Usage.TokensOut == 0 {
				t.Errorf("usage %+v", turn.Usage)
			}
		}},
		{name: "negative usage", turns: []modelserver.Turn{{Text: "x", Usage: &modelserver.Usage{In: -5_000_000, Out: -1}}}, check: func(t *testing.T, turn contract.Turn) {
			if turn.Usage.TokensIn <= 0 || turn.Usage.TokensOut != 500 || turn.Usage.Validate() != nil {
				t.Errorf("usage %+v", turn.Usage)
			}
		}},
		{name: "overflowing usage", turns: []modelserver.Turn{{Text: "x", Usage: &modelserver.Usage{In: 1<<63 - 1, Out: 1<<63 - 1, Exact: true}}}, check: func(t *testing.T, turn contract.Turn) {
			if turn.Usage.TokensIn > 1000 || turn.Usage.TokensOut != 500 {
				t.Errorf("usage %+v", turn.Usage)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			each(t, func(t *testing.T, wire modelserver.Wire) {
				g, _, m := play(t, wire, func(o *gateway.Options) {
					if strings.HasPrefix(c.name, "hang") || strings.HasPrefix(c.name, "stall") {
						o.Limits.FirstByte, o.Limits.Idle = time.Second, time.Second
					}
					if c.name == "endless" {
						o.Limits.Output = 64 << 10 // with the default it would take twenty thousand events
					}
				}, c.turns...)
				turn, err := g.Turn(t.Context(), scope(), say("go"), nil)
				outcome := "ok"
				if c.code != "" {
					outcome = c.code
					var te *contract.TurnError
					if !errors.As(err, &te) || te.Code != c.code {
						t.Fatalf("got %v, want code %s", err, c.code)
					}
				} else if err != nil {
					t.Fatal(err)
				}
				if c.check != nil {
					c.check(t, turn)
				}
				all := m.taken()
				if len(all) != 1 || all[0].Outcome != outcome || all[0].Retries != c.retries {
					t.Errorf("metered %+v, want one with outcome %q and %d retries", all, outcome, c.retries)
				}
				if b, err := json.Marshal(turn); err != nil || len(b) > contract.MaxTurn {
					t.Errorf("the turn does not encode within bounds: %d bytes, %v", len(b), err)
				}
				if c.code == "" {
					next := say("go on")
					next.Messages = append(next.Messages, turn.Message)
					if err := next.Validate(); err != nil {
						t.Errorf("the answer can't go back into a conversation: %v", err)
					}
				}
			})
		})
	}
}

func TestNoRetryOnceTextWasShown(t *testing.T) {
	each(t, func(t *testing.T, wire modelserver.Wire) {
		g, s, m := play(t, wire, nil, modelserver.Turn{Fault: &modelserver.Fault{Kind: "cut"}}, modelserver.Turn{Text: "fine"})
		_, err := g.Turn(t.Context(), scope(), say("go"), func(string) {})
		var te *contract.TurnError
		if !errors.As(err, &te) || !te.Retriable || len(s.Requests()) != 1 {
			t.Errorf("got %v after %d requests", err, len(s.Requests()))
		}
		if all := m.taken(); len(all) != 1 || all[0].Usage.TokensIn == 0 || !all[0].Estimated {
			t.Errorf("what was consumed on the way must be metered: %+v", all)
		}
	})
}

func TestKeysStayInside(t *testing.T) {
	each(t, func(t *testing.T, wire modelserver.Wire) {
		var logs strings.Builder
		elsewhere := modelserver.New(modelserver.Script{Turns: []modelserver.Turn{{Text: "stolen", Repeat: true}}}).Start()
		defer elsewhere.Close()
		g, _, _ := play(t, wire, func(o *gateway.Options) {
			o.Logger = slog.New(slog.NewTextHandler(&logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
		},
			modelserver.Turn{Fault: &modelserver.Fault{Kind: "leak"}},
			modelserver.Turn{Fault: &modelserver.Fault{Kind: "echo_key"}},
			modelserver.Turn{Text: "x", Fault: &modelserver.Fault{Kind: "redirect", Location: elsewhere.URL() + "/v1/messages"}})
		_, err := g.Turn(t.Context(), scope(), say("go"), nil)
		if err == nil || strings.Contains(err.Error(), canary) || !strings.Contains(err.Error(), "[key]") {
			t.Errorf("error %v", err)
		}
		var deltas strings.Builder
		turn, err := g.Turn(t.Context(), scope(), say("go"), func(d string) { deltas.WriteString(d) })
		if err != nil || strings.Contains(turn.Message.Parts[0].Text+deltas.String(), "canary") || !strings.HasSuffix(deltas.String(), "[key], is it not?") {
			t.Errorf("text %+v, deltas %q, %v", turn.Message.Parts, deltas.String(), err)
		}
		_, err = g.Turn(t.Context(), scope(), say("go"), nil)
		if err == nil || len(elsewhere.Requests()) != 0 {
			t.Errorf("a redirect was followed: %v, %d requests elsewhere", err, len(elsewhere.Requests()))
		}
		if strings.Contains(logs.String(), canary) {
			t.Errorf("the key is in the log: %s", logs.String())
		}
	})
}

func TestCancelledCallIsMeteredOnce(t *testing.T) {
	g, s, m := play(t, modelserver.Anthropic, func(o *gateway.Options) { o.Limits.FirstByte = time.Minute }, modelserver.Turn{Fault: &modelserver.Fault{Kind: "hang"}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := g.Turn(ctx, scope(), say("go"), nil)
		ended <- err
	}()
	until(t, func() bool { return len(s.Requests()) == 1 })
	cancel()
	var te *contract.TurnError
	if err := <-ended; !errors.As(err, &te) || te.Code != gateway.CodeCancelled {
		t.Errorf("got %v", err)
	}
	if all := m.taken(); len(all) != 1 || all[0].Outcome != gateway.CodeCancelled {
		t.Errorf("metered %+v", all)
	}
}

func TestTurnFailsWhenItCannotBeMetered(t *testing.T) {
	g, _, m := play(t, modelserver.OpenAI, nil, modelserver.Turn{Text: "fine"})
	m.err = errors.New("the log is full")
	_, err := g.Turn(t.Context(), scope(), say("go"), nil)
	var te *contract.TurnError
	if !errors.As(err, &te) || !strings.Contains(err.Error(), "the log is full") || !strings.Contains(err.Error(), "no more is spent") || te.Retriable {
		t.Errorf("got %v", err)
	}
}

func TestEndlessStreamEndsAtTheWall(t *testing.T) {
	each(t, func(t *testing.T, wire modelserver.Wire) {
		g, _, m := play(t, wire, func(o *gateway.Options) {
			o.Limits.Wall, o.Limits.Output, o.Limits.Body, o.Limits.Idle = 500*time.Millisecond, 1<<30, 1<<40, time.Minute
		}, modelserver.Turn{Fault: &modelserver.Fault{Kind: "stall"}})
		turn, err := g.Turn(t.Context(), scope(), say("go"), nil)
		if err != nil || turn.Stop != contract.StopTruncate {
			t.Errorf("stop %q, %v", turn.Stop, err)
		}
		if all := m.taken(); len(all) != 1 || !all[0].Estimated {
			t.Errorf("metered %+v", all)
		}
	})
}

func until(t *testing.T, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatal("the condition did not come true in time")
		}
		time.Sleep(time.Millisecond)
	}
}

func chunks(t *testing.T, r io.Reader) []contract.TurnChunk {
	t.Helper()
	var out []contract.TurnChunk
	d := json.NewDecoder(r)
	for {
		var c contract.TurnChunk
		if err := d.Decode(&c); err == io.EOF {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		out = append(out, c)
	}
}
