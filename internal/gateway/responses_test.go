package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"image"
	"image/png"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/gateway"
	"choir.dev/choiros/test/modelserver"
)

// TestThoughtsGoBackEncrypted: in the Responses format the service keeps nothing, so what the model thought goes back as the
// item that it was, before what followed from it.
func TestThoughtsGoBackEncrypted(t *testing.T) {
	g, s, m := play(t, modelserver.Responses, nil,
		modelserver.Turn{
			Reasoning: []modelserver.Thought{{ID: "rs_1", Text: "First I look, and then I think.", Opaque: "gAAAA/9+="}, {ID: "rs_2", Opaque: "gBBBB"}, {ID: "rs_3", Text: "kept nowhere"}},
			Text:      "looking", Calls: []modelserver.Call{{ID: "call_1", Name: "read", Args: modelserver.Args(map[string]string{"path": "a"})}},
			Usage: &modelserver.Usage{In: 100, Out: 50, CacheRead: 1000, CacheWrite: 10},
		}, modelserver.Turn{Text: "done", Repeat: true})
	req := say("go")
	req.Effort = contract.EffortHigh
	turn, err := g.Turn(t.Context(), scope(), req, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := turn.Message.Parts
	want := contract.Reasoning{Provider: "openai", ID: "rs_1", Text: "First I look, and then I think.", Opaque: "gAAAA/9+=", Hidden: true}
	if len(p) != 5 || p[0].Reasoning == nil || *p[0].Reasoning != want || p[1].Reasoning == nil || p[1].Reasoning.Opaque != "gBBBB" || p[3].Text != "looking" || p[4].Call == nil || turn.Stop != contract.StopToolUse {
		t.Fatalf("parts %+v", p)
	}
	if u := m.taken()[0].Usage; u.TokensIn != 1110 || u.TokensCached != 1000 || u.TokensOut != 50 {
		t.Errorf("usage %+v", u)
	}
	body := string(s.Requests()[0].Body)
	for _, w := range []string{`"store":false`, `"include":["reasoning.encrypted_content"]`, `"effort":"high"`, `"instructions":"be brief"`, `"max_output_tokens":500`} {
		if !strings.Contains(body, w) {
			t.Errorf("%s is not in %s", w, body)
		}
	}
	next := say("go")
	next.Messages = append(next.Messages, turn.Message, contract.Message{Role: contract.MessageUser, Parts: []contract.Part{{Return: &contract.ToolReturn{ID: "call_1", Content: "x", IsError: true}}}})
	if _, err := g.Turn(t.Context(), scope(), next, nil); err != nil {
		t.Fatal(err)
	}
	var sent struct {
		Input []json.RawMessage `json:"input"`
	}
	if err := json.Unmarshal(s.Requests()[1].Body, &sent); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{
		`{"content":[{"text":"go","type":"input_text"}],"role":"user","type":"message"}`,
		`{"encrypted_content":"gAAAA/9+=","id":"rs_1","summary":[{"text":"First I look, and then I think.","type":"summary_text"}],"type":"reasoning"}`,
		`{"encrypted_content":"gBBBB","id":"rs_2","summary":[],"type":"reasoning"}`,
		`{"content":"looking","role":"assistant","type":"message"}`,
		`{"arguments":"{\"path\":\"a\"}","call_id":"call_1","name":"read","type":"function_call"}`,
		`{"call_id":"call_1","output":"Error: x","type":"function_call_output"}`,
	} {
		var got, w any
		if i >= len(sent.Input) || json.Unmarshal(sent.Input[i], &got) != nil || json.Unmarshal([]byte(want), &w) != nil {
			t.Fatalf("sent %s", s.Requests()[1].Body)
		}
		if a, b := must(json.Marshal(got)), must(json.Marshal(w)); !bytes.Equal(a, b) {
			t.Errorf("item %d: sent %s, want %s", i, a, b)
		}
	}
	if len(sent.Input) != 6 {
		t.Errorf("sent %d items: %s", len(sent.Input), s.Requests()[1].Body)
	}
}

func must(b []byte, _ error) []byte { return b }

// TestHowAResponseEnds: what the service says of it becomes the turn's stop, or an error with the code of what failed.
func TestHowAResponseEnds(t *testing.T) {
	for _, c := range []struct {
		name string
		turn modelserver.Turn
		stop contract.StopReason
		code string
	}{
		{"whole", modelserver.Turn{Text: "yes"}, contract.StopEnd, ""},
		{"too long", modelserver.Turn{Text: "yes", Stop: "length"}, contract.StopLength, ""},
		{"filtered", modelserver.Turn{Text: "ye", Stop: "refusal"}, contract.StopRefusal, ""},
		{"refused in words", modelserver.Turn{Refusal: "I can't help with that."}, contract.StopRefusal, ""},
		{"too many requests", modelserver.Turn{Text: "slow down", Stop: "failed", Code: "rate_limit_exceeded", Repeat: true}, "", "rate_limited"},
		{"a fault of theirs", modelserver.Turn{Text: "sorry", Stop: "failed", Code: "server_error", Repeat: true}, "", "unavailable"},
		{"over the window", modelserver.Turn{Text: "Your input exceeds the context window of this model.", Stop: "failed", Code: "context_length_exceeded"}, "", "overflow"},
		{"what can't be", modelserver.Turn{Text: "no", Stop: "failed", Code: "invalid_prompt"}, "", "invalid"},
	} {
		g, _, _ := play(t, modelserver.Responses, nil, c.turn)
		turn, err := g.Turn(t.Context(), scope(), say("go"), nil)
		if code(err) != c.code || turn.Stop != c.stop {
			t.Errorf("%s: stop %q, %v", c.name, turn.Stop, err)
		}
	}
}

// TestOpenAIsOwnModelsAreCalledByResponses: at the vendor's address, those that the catalogue says so of; a model that nothing
// is known of, a compatible service, and whoever configures it, get chat completions.
func TestOpenAIsOwnModelsAreCalledByResponses(t *testing.T) {
	for _, c := range []struct {
		model   string
		service gateway.Service
		want    string
	}{
		{"openai/gpt-6.2-sol", gateway.Service{}, "https://api.openai.com/v1/responses"},
		{"openai/gpt-5.4", gateway.Service{}, "https://api.openai.com/v1/responses"},
		{"openai/unheard-of", gateway.Service{}, "https://api.openai.com/v1/chat/completions"},
		{"openai/gpt-5.4", gateway.Service{Wire: gateway.WireChat}, "https://api.openai.com/v1/chat/completions"},
		{"openai/gpt-5.4", gateway.Service{BaseURL: "https://compatible.example/v1"}, "https://compatible.example/v1/chat/completions"},
		{"openai/gpt-5.4", gateway.Service{BaseURL: "https://compatible.example/v1", Wire: gateway.WireResponses}, "https://compatible.example/v1/responses"},
		{"acme/large", gateway.Service{BaseURL: "https://acme.example", Wire: gateway.WireResponses}, "https://acme.example/responses"},
	} {
		s := modelserver.New(modelserver.Script{Turns: []modelserver.Turn{{Text: "hello"}}}).Start()
		prov, _, _ := strings.Cut(c.model, "/")
		g, r := elsewhere(t, s, gateway.Options{Keys: func(context.Context, string) (string, error) { return "key-123456", nil }, Providers: map[string]gateway.Service{prov: c.service}})
		sc := scope()
		sc.Model = c.model
		if _, err := g.Turn(t.Context(), sc, say("x"), nil); err != nil || len(r.was) != 1 || r.was[0] != c.want {
			t.Errorf("%s: asked at %v, want %s: %v", c.model, r.was, c.want, err)
		}
		s.Close()
	}
}

// TestResponsesShowsPicturesAndHoldsToAForm covers what the format has besides conversations.
func TestResponsesShowsPicturesAndHoldsToAForm(t *testing.T) {
	var drawn bytes.Buffer
	if err := png.Encode(&drawn, image.NewGray(image.Rect(0, 0, 3, 3))); err != nil {
		t.Fatal(err)
	}
	ref := contract.NewBlobRef([32]byte{1})
	g, s, _ := play(t, modelserver.Responses, func(o *gateway.Options) { o.Blobs = pictures{ref: drawn.Bytes()} }, modelserver.Turn{Text: `{"colour":"red","count":3}`})
	req := say("look")
	shown := contract.Image{Media: "image/png", Ref: ref, Bytes: 10}
	req.Messages = append(req.Messages,
		contract.Message{Role: contract.MessageAssistant, Parts: []contract.Part{{Call: &contract.ToolCall{ID: "c", Name: "read", Args: json.RawMessage("{}")}}}},
		contract.Message{Role: contract.MessageUser, Parts: []contract.Part{{Return: &contract.ToolReturn{ID: "c", Content: "a picture", Images: []contract.Image{shown}}}, {Image: &shown}}})
	req.Output = &contract.Output{Name: "a colour", Schema: json.RawMessage(`{"type":"object","additionalProperties":false,"required":["colour","count"],"properties":{"colour":{"type":"string"},"count":{"type":"integer"}}}`)}
	if _, err := g.Turn(t.Context(), scope(), req, nil); err != nil {
		t.Fatal(err)
	}
	body := string(s.Requests()[0].Body)
	for _, w := range []string{`"output":[{"text":"a picture","type":"input_text"},{"image_url":"data:image/png;base64,`, `{"detail":"auto","image_url":"data:image/png;base64,`, `"format":{"name":"a_colour"`, `"strict":true`, `"type":"json_schema"`} {
		if !strings.Contains(body, w) {
			t.Errorf("%s is not in %s", w, body)
		}
	}
}
