package inward_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	anthropic "github.com/anthropics/anthropic-sdk-go"
	openai "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
	"pgregory.net/rapid"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/gateway"
	"choir.dev/choiros/internal/gateway/inward"
	"choir.dev/choiros/internal/gateway/provider"
)

func sum(b []byte) [sha256.Size]byte { return sha256.Sum256(b) }

func turnOf(stop contract.StopReason, parts ...contract.Part) contract.Turn {
	return contract.Turn{Provider: "the", Model: "hosts", Stop: stop, Usage: contract.Usage{TokensIn: 100, TokensOut: 20, TokensCached: 40},
		Message: contract.Message{Role: contract.MessageAssistant, Parts: parts}}
}

func callOf(id, name, args string) contract.Part {
	return contract.Part{Call: &contract.ToolCall{ID: id, Name: name, Args: json.RawMessage(args)}}
}

// each asks over every wire, streamed and not.
func each(t *testing.T, f func(t *testing.T, w wire, stream bool)) {
	for _, w := range wires {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/stream=%v", w.name, stream), func(t *testing.T) { f(t, w, stream) })
		}
	}
}

func TestTheVendorsClientsAreAnswered(t *testing.T) {
	each(t, func(t *testing.T, w wire, stream bool) {
		p := &played{}
		url := serve(t, p, nil)
		p.answers(turnOf(contract.StopToolUse, contract.Part{Text: "I'll look — ünïcode."}, callOf("c_1", "read", `{"path":"a"}`), callOf("c_2", "read", `{"path":"b"}`)), "I'll look", " — ünïcode.")
		got, err := w.ask(t.Context(), url, stream)
		if err != nil {
			t.Fatal(err)
		}
		if got.text != "I'll look — ünïcode." || len(got.calls) != 2 || got.calls[0].ID != "c_1" || got.calls[1].Name != "read" || string(got.calls[1].Args) != `{"path":"b"}` {
			t.Errorf("the client has %+v", got)
		}
		if got.in != 100 || got.out != 20 {
			t.Errorf("the client counts %d tokens in and %d out", got.in, got.out)
		}
		if want := map[string]string{"messages": "tool_use", "completions": "tool_calls", "responses": "completed"}[w.name]; got.stop != want {
			t.Errorf("it stopped because of %q; want %q", got.stop, want)
		}
		req := p.last(t)
		if req.System != "be brief" || req.MaxTokens != 500 || len(req.Messages) != 1 || req.Messages[0].Parts[0].Text != "hello" || len(req.Tools) != 1 || req.Tools[0].Description != "reads" || !strings.Contains(string(req.Tools[0].Schema), `"path"`) {
			t.Errorf("the gateway was asked %+v", req)
		}
		p.answers(turnOf(contract.StopLength, contract.Part{Text: "too lo"}), "too lo")
		if got, err = w.ask(t.Context(), url, stream); err != nil || got.text != "too lo" {
			t.Fatal(got, err)
		}
		if want := map[string]string{"messages": "max_tokens", "completions": "length", "responses": "incompletemax_output_tokens"}[w.name]; got.stop != want {
			t.Errorf("a cut answer stopped because of %q; want %q", got.stop, want)
		}
	})
}

// TestAnyTurnArrives: whatever turn the gateway gives, and however its text came, each vendor's client has
// the same text and the same calls.
func TestAnyTurnArrives(t *testing.T) {
	p := &played{}
	url := serve(t, p, nil)
	rapid.Check(t, func(r *rapid.T) {
		words := rapid.SampledFrom([]string{"x", " ", "\n\n", "ünïcode", "data: [DONE]\n\n", `"}`, "\u2028"})
		turn := turnOf(rapid.SampledFrom([]contract.StopReason{contract.StopEnd, contract.StopToolUse, contract.StopLength, contract.StopRefusal, contract.StopTruncate}).Draw(r, "stop"))
		var want said
		for i := range rapid.IntRange(0, 5).Draw(r, "parts") {
			switch rapid.IntRange(0, 2).Draw(r, "kind") {
			case 0:
				text := words.Draw(r, "text")
				want.text += text
				turn.Message.Parts = append(turn.Message.Parts, contract.Part{Text: text})
			case 1:
				args := rapid.SampledFrom([]string{`{}`, `{"a":[1,{"b":null}]}`, `{"path":"ü\n\""}`}).Draw(r, "args")
				part := callOf(fmt.Sprintf("c_%d", i), rapid.SampledFrom([]string{"read", "a-b_C"}).Draw(r, "name"), args)
				want.calls = append(want.calls, *part.Call)
				turn.Message.Parts = append(turn.Message.Parts, part)
			default:
				text := words.Draw(r, "thought")
				want.thoughts = append(want.thoughts, text)
				turn.Message.Parts = append(turn.Message.Parts, contract.Part{Reasoning: &contract.Reasoning{Provider: "p", Text: text, Opaque: "sig"}})
			}
		}
		var deltas []string
		if said := []rune(want.text); len(said) > 0 {
			cut := rapid.IntRange(0, len(said)).Draw(r, "cut")
			deltas = []string{string(said[:cut]), string(said[cut:])}[:rapid.IntRange(0, 2).Draw(r, "deltas")]
		}
		p.answers(turn, deltas...)
		for _, w := range wires {
			for _, stream := range []bool{false, true} {
				got, err := w.ask(context.Background(), url, stream)
				if err != nil {
					r.Fatalf("%s, stream=%v: %v", w.name, stream, err)
				}
				if got.text != want.text || len(got.calls) != len(want.calls) {
					r.Fatalf("%s, stream=%v: the client has %q and %d calls; want %q and %d", w.name, stream, got.text, len(got.calls), want.text, len(want.calls))
				}
				for i, c := range want.calls {
					if g := got.calls[i]; g.ID != c.ID || g.Name != c.Name || !sameJSON(g.Args, c.Args) {
						r.Fatalf("%s, stream=%v: call %d is %+v %s; want %+v %s", w.name, stream, i, g, g.Args, c, c.Args)
					}
				}
				if w.name != "completions" && !reflect.DeepEqual(got.thoughts, want.thoughts) { // the vendor's type has none
					r.Fatalf("%s, stream=%v: the client has the thoughts %q; want %q", w.name, stream, got.thoughts, want.thoughts)
				}
			}
		}
	})
}

func sameJSON(a, b json.RawMessage) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// TestThoughtsComeBack: a client that sends an answer back as it had it sends the thoughts to where they
// came from, in their place.
func TestThoughtsComeBack(t *testing.T) {
	thought := contract.Reasoning{Provider: "the", ID: "rs_7", Text: "hm", Opaque: "signature"}
	hidden := contract.Reasoning{Provider: "the", Opaque: "blob", Hidden: true}
	call := callOf("c_1", "read", `{"path":"a"}`)
	turn := turnOf(contract.StopToolUse, contract.Part{Reasoning: &thought}, contract.Part{Reasoning: &hidden}, contract.Part{Text: "first"}, call)
	want := turn.Message.Parts
	for _, stream := range []bool{false, true} {
		p := &played{}
		url := serve(t, p, nil)
		p.answers(turn, "fir", "st")
		check := func(what string, err error) {
			t.Helper()
			if err != nil {
				t.Fatalf("%s, stream=%v: %v", what, stream, err)
			}
			req := p.last(t)
			if len(req.Messages) != 3 || !reflect.DeepEqual(req.Messages[1].Parts, want) || req.Messages[2].Parts[0].Return.Content != "found" {
				b, _ := json.Marshal(req.Messages)
				t.Errorf("%s, stream=%v: what the client sends back is %s", what, stream, b)
			}
		}
		ask := anthropic.MessageNewParams{Model: "m", MaxTokens: 500, Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("hello"))}}
		m, err := askMessages(t.Context(), url, stream, ask)
		if err != nil {
			t.Fatal(err)
		}
		ask.Messages = append(ask.Messages, m.ToParam(), anthropic.NewUserMessage(anthropic.NewToolResultBlock("c_1", "found", false)))
		_, err = askMessages(t.Context(), url, stream, ask)
		check("messages", err)

		resp := responses.ResponseNewParams{Model: "m", Input: responses.ResponseNewParamsInputUnion{OfInputItemList: responses.ResponseInputParam{responses.ResponseInputItemParamOfMessage("hello", responses.EasyInputMessageRoleUser)}}}
		r, err := askResponses(t.Context(), url, stream, resp)
		if err != nil {
			t.Fatal(err)
		}
		items := resp.Input.OfInputItemList
		for _, it := range r.Output {
			var back responses.ResponseInputItemUnionParam
			if err := json.Unmarshal([]byte(it.RawJSON()), &back); err != nil {
				t.Fatal(err)
			}
			items = append(items, back)
		}
		out := responses.ResponseInputItemParamOfFunctionCallOutput("found")
		out.OfFunctionCallOutput.CallID = openai.String("c_1")
		resp.Input.OfInputItemList = append(items, out)
		_, err = askResponses(t.Context(), url, stream, resp)
		check("responses", err)

		if stream {
			continue // clients of this format put pieces of fields together that it has not in ways of their own
		}
		_, _, body := post(t, url+"/v1/chat/completions", `{"messages":[{"role":"user","content":"hello"}]}`)
		var c struct {
			Choices []struct{ Message json.RawMessage }
		}
		if err := json.Unmarshal([]byte(body), &c); err != nil || len(c.Choices) != 1 {
			t.Fatal(body, err)
		}
		_, _, body = post(t, url+"/v1/chat/completions", `{"messages":[{"role":"user","content":"hello"},`+string(c.Choices[0].Message)+`,{"role":"tool","tool_call_id":"c_1","content":"found"}]}`)
		check("completions "+body, nil)
	}
}

// TestForeignThoughtsAreLeftOut: the service that answers would refuse a signature that it did not make.
func TestForeignThoughtsAreLeftOut(t *testing.T) {
	p := &played{}
	url := serve(t, p, nil)
	p.answers(turnOf(contract.StopEnd, contract.Part{Text: "ok"}))
	_, err := askMessages(t.Context(), url, false, anthropic.MessageNewParams{Model: "m", MaxTokens: 1, Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("a")),
		anthropic.NewAssistantMessage(anthropic.NewThinkingBlock("EqQBCkgIARABGAIiQL", "elsewhere"), anthropic.NewTextBlock("b")), anthropic.NewUserMessage(anthropic.NewTextBlock("c"))}})
	if err != nil {
		t.Fatal(err)
	}
	if m := p.last(t).Messages[1]; len(m.Parts) != 1 || m.Parts[0].Text != "b" {
		t.Errorf("the gateway was given %+v", m)
	}
}

const onePixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

// TestPicturesAreKept: a picture goes the way of the computer's own, as a blob.
func TestPicturesAreKept(t *testing.T) {
	raw, err := base64.StdEncoding.DecodeString(onePixel)
	if err != nil {
		t.Fatal(err)
	}
	want := contract.Image{Media: "image/png", Ref: contract.NewBlobRef(sum(raw)), Bytes: int64(len(raw))}
	url := "data:image/png;base64," + onePixel
	for path, body := range map[string]string{
		"/v1/messages":         `{"max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":"see"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + onePixel + `"}}]}]}`,
		"/v1/chat/completions": `{"messages":[{"role":"user","content":[{"type":"text","text":"see"},{"type":"image_url","image_url":{"url":"` + url + `"}}]}]}`,
		"/v1/responses":        `{"input":[{"role":"user","content":[{"type":"input_text","text":"see"},{"type":"input_image","image_url":"` + url + `"}]}]}`,
	} {
		p := &played{}
		base := serve(t, p, nil)
		p.answers(turnOf(contract.StopEnd, contract.Part{Text: "nice"}))
		if status, _, out := post(t, base+path, body); status != 200 {
			t.Fatalf("%s: %d %s", path, status, out)
		}
		if m := p.last(t).Messages[0]; len(m.Parts) != 2 || m.Parts[1].Image == nil || *m.Parts[1].Image != want {
			t.Errorf("%s: the gateway was given %+v", path, m)
		}
		for what, broken := range map[string]string{"another kind": strings.Replace(body, "image/png", "image/jpeg", 1), "an address": strings.Replace(strings.Replace(body, url, "https://evil.example/p.png", 1), `"type":"base64"`, `"type":"url"`, 1)} {
			if status, _, out := post(t, base+path, broken); status != 400 {
				t.Errorf("%s, %s: %d %s", path, what, status, out)
			}
		}
		without := serve(t, p, func(o *inward.Options) { o.Keep = nil })
		if status, _, out := post(t, without+path, body); status != 400 || !strings.Contains(out, "pictures can't be shown") {
			t.Errorf("%s, where none are kept: %d %s", path, status, out)
		}
	}
}

// TestWhatChangesTheMeaningIsRefused in words; what only tunes a service is ignored.
func TestWhatChangesTheMeaningIsRefused(t *testing.T) {
	p := &played{}
	url := serve(t, p, nil)
	p.answers(turnOf(contract.StopEnd, contract.Part{Text: "ok"}))
	base := map[string]string{
		"/v1/messages":         `"max_tokens":9,"messages":[{"role":"user","content":"hi"}]`,
		"/v1/chat/completions": `"messages":[{"role":"user","content":"hi"}]`,
		"/v1/responses":        `"input":"hi"`,
	}
	for path, fields := range map[string][]string{
		"/v1/messages": {`"stop_sequences":["x"]`, `"mcp_servers":[{"url":"https://x"}]`, `"tools":[{"type":"web_search_20250305","name":"web_search"}]`, `"tool_choice":{"type":"tool","name":"nope"}`, `"messages":[{"role":"user","content":[{"type":"document","source":{}}]}]`, `"messages":"x"`},
		"/v1/chat/completions": {`"n":2`, `"logprobs":true`, `"stop":"x"`, `"store":true`, `"functions":[{"name":"f"}]`, `"modalities":["audio"]`, `"tools":[{"type":"custom","custom":{"name":"f"}}]`, `"response_format":{"type":"grammar"}`,
			`"tool_choice":"required"`, `"messages":[{"role":"user","content":[{"type":"input_audio"}]}]`, `"messages":[{"role":"wizard","content":"x"}]`},
		"/v1/responses": {`"background":true`, `"store":true`, `"previous_response_id":"resp_1"`, `"conversation":"conv_1"`, `"include":["message.output_text.logprobs"]`, `"tools":[{"type":"web_search"}]`, `"input":[{"type":"item_reference","id":"x"}]`, `"input":7`},
	} {
		for _, field := range fields {
			status, h, out := post(t, url+path, "{"+base[path]+","+field+"}")
			name, _, _ := strings.Cut(strings.Trim(field, `"`), `"`)
			if status != 400 || !strings.Contains(out, name) || !strings.Contains(out, "invalid_request_error") || h.Get("X-Should-Retry") != "false" {
				t.Errorf("%s with %s: %d %s", path, field, status, out)
			}
		}
	}
	for path, fields := range map[string]string{
		"/v1/messages":         `"temperature":0.3,"top_k":5,"metadata":{"user_id":"u"},"service_tier":"auto","stop_sequences":[],"context_management":{"edits":[]},"thinking":{"type":"enabled","budget_tokens":2048},"never_heard_of":[1]`,
		"/v1/chat/completions": `"temperature":0.3,"seed":7,"n":1,"logprobs":false,"stop":null,"store":false,"user":"u","reasoning_effort":"low","service_tier":"auto","never_heard_of":{"a":1},"parallel_tool_calls":true`,
		"/v1/responses":        `"temperature":0.3,"store":false,"include":["reasoning.encrypted_content"],"truncation":"auto","prompt_cache_key":"k","reasoning":{"effort":"low","summary":"auto"},"text":{"verbosity":"low"},"never_heard_of":"x"`,
	} {
		if status, _, out := post(t, url+path, "{"+base[path]+","+fields+"}"); status != 200 {
			t.Errorf("%s with what is harmless: %d %s", path, status, out)
		} else if e := p.last(t).Effort; e != contract.EffortLow {
			t.Errorf("%s: the effort is %q", path, e)
		}
	}
}

// TestErrorsAsTheVendorsSayThem: what a client decides on is as its vendor has it.
func TestErrorsAsTheVendorsSayThem(t *testing.T) {
	for _, c := range []struct {
		code      string
		retriable bool
		anthropic int
		kind      string
		openai    int
		openCode  string
		says      string
	}{
		{provider.CodeBudget, false, 402, "billing_error", 429, "insufficient_quota", "used up"},
		{provider.CodeOverflow, false, 400, "prompt is too long", 400, "context_length_exceeded", "used up"},
		{provider.CodeRateLimited, true, 429, "rate_limit_error", 429, "rate_limit_exceeded", "used up"},
		{provider.CodeInvalid, false, 400, "invalid_request_error", 400, "", "used up"},
		{provider.CodeTooLarge, false, 413, "request_too_large", 413, "request_too_large", "used up"},
		{provider.CodeNoModel, false, 404, "not_found_error", 404, "model_not_found", "used up"},
		{provider.CodeUnavailable, true, 503, "api_error", 503, "unavailable", "used up"},
		{provider.CodeTimeout, true, 504, "timeout_error", 504, "timeout", "used up"},
	} {
		each(t, func(t *testing.T, w wire, stream bool) {
			p := &played{}
			url := serve(t, p, nil)
			p.fails(&contract.TurnError{Code: c.code, Message: "it is used up", Retriable: c.retriable})
			_, err := w.ask(t.Context(), url, stream)
			var a *anthropic.Error
			var o *openai.Error
			var h http.Header
			status, body := 0, ""
			switch {
			case errors.As(err, &a):
				status, h, body = a.StatusCode, a.Response.Header, a.RawJSON()
			case errors.As(err, &o):
				status, h, body = o.StatusCode, o.Response.Header, o.RawJSON()
			default:
				t.Fatalf("%s: the client has %v", c.code, err)
			}
			wantStatus, wantText := c.openai, c.openCode
			if w.name == "messages" {
				wantStatus, wantText = c.anthropic, c.kind
			}
			if status != wantStatus || !strings.Contains(body, wantText) || !strings.Contains(body, c.says) || h.Get("X-Should-Retry") != fmt.Sprint(c.retriable) || (h.Get("Retry-After") != "") != c.retriable {
				t.Errorf("%s: %d %s %v", c.code, status, body, h)
			}
			// Once part of an answer is out, the stream says that it failed.
			if stream {
				p.fails(&contract.TurnError{Code: c.code, Message: "it is used up"}, "beginning")
				if _, err := w.ask(t.Context(), url, true); err == nil || !strings.Contains(err.Error(), "it is used up") {
					t.Errorf("%s, in the middle: %v", c.code, err)
				}
			}
		})
	}
}

// TestWhatAChoiceDemands: forced, forbidden and single calls are asked for in words, and checked.
func TestWhatAChoiceDemands(t *testing.T) {
	tools := `"tools":[{"type":"function","function":{"name":"read","parameters":{"type":"object"}}},{"type":"function","function":{"name":"write"}}],"messages":[{"role":"user","content":"hi"}]`
	text, read, write := contract.Part{Text: "no"}, callOf("c_1", "read", `{}`), callOf("c_2", "write", `{}`)
	for _, c := range []struct {
		choice string
		turn   contract.Turn
		status int
		says   string
	}{
		{`"tool_choice":"required"`, turnOf(contract.StopToolUse, read), 200, `"read"`},
		{`"tool_choice":"required"`, turnOf(contract.StopEnd, text), 502, "tool_choice"},
		{`"tool_choice":{"type":"function","function":{"name":"write"}}`, turnOf(contract.StopToolUse, read), 502, "tool_choice"},
		{`"tool_choice":{"type":"function","function":{"name":"write"}}`, turnOf(contract.StopToolUse, read, write), 200, `"write"`},
		{`"tool_choice":"none"`, turnOf(contract.StopToolUse, read), 502, "none"},
		{`"parallel_tool_calls":false`, turnOf(contract.StopToolUse, read, write), 200, `"read"`},
	} {
		p := &played{}
		url := serve(t, p, nil)
		p.answers(c.turn)
		status, _, out := post(t, url+"/v1/chat/completions", "{"+tools+","+c.choice+"}")
		if status != c.status || !strings.Contains(out, c.says) {
			t.Errorf("%s: %d %s", c.choice, status, out)
		}
		if strings.Contains(c.choice, "parallel") && strings.Contains(out, "write") {
			t.Errorf("%s: two calls: %s", c.choice, out)
		}
	}
}

// TestACallThatWasCutIsNotRun: it is not in the answer, and the answer says that it is not whole.
func TestACallThatWasCutIsNotRun(t *testing.T) {
	each(t, func(t *testing.T, w wire, stream bool) {
		p := &played{}
		cut := callOf("c_1", "read", `"{\"path\":\"a"`)
		cut.Call.Cut, cut.Call.Arrived = true, 12
		p.answers(turnOf(contract.StopLength, contract.Part{Text: "x"}, cut), "x")
		got, err := w.ask(t.Context(), serve(t, p, nil), stream)
		if err != nil || len(got.calls) > 0 || got.text != "x" {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// TestCountedTokens: the estimate is what the gateway reserves, and keeps no picture.
func TestCountedTokens(t *testing.T) {
	p := &played{}
	url := serve(t, p, func(o *inward.Options) { o.Keep = nil })
	c := anthropicClient(url, token)
	got, err := c.Messages.CountTokens(t.Context(), anthropic.MessageCountTokensParams{Model: "m", Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(strings.Repeat("word ", 300)))}})
	if err != nil || got.InputTokens != gateway.EstimateTokens(contract.TurnRequest{Messages: []contract.Message{{Role: contract.MessageUser, Parts: []contract.Part{{Text: strings.Repeat("word ", 300)}}}}}) || got.InputTokens < 300 {
		t.Errorf("%+v, %v", got, err)
	}
	if len(p.requests) != 0 {
		t.Error("counting asked a model")
	}
}

// TestTheModelsList has the one that answers, for either vendor's client.
func TestTheModelsList(t *testing.T) {
	url := serve(t, &played{}, nil)
	ac, oc := anthropicClient(url, token), openaiClient(url, token)
	a, err := ac.Models.List(t.Context(), anthropic.ModelListParams{})
	if err != nil || len(a.Data) != 1 || a.Data[0].ID != "the/hosts" {
		t.Errorf("anthropic: %+v, %v", a, err)
	}
	o, err := oc.Models.List(t.Context())
	if err != nil || len(o.Data) != 1 || o.Data[0].ID != "the/hosts" {
		t.Errorf("openai: %+v, %v", o, err)
	}
}
