package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/gateway"
	"choir.dev/choiros/test/modelserver"
)

// TestReasoningGoesBackAsItCame shows that what a model thought is part of its turn, and that its service is sent it again
// unchanged, before what followed from it, and no other service is.
func TestReasoningGoesBackAsItCame(t *testing.T) {
	g, s, _ := play(t, modelserver.Anthropic, nil,
		modelserver.Turn{
			Reasoning: []modelserver.Thought{{Text: "First I look. Then — ünïcode — I think.", Opaque: "sig/9+="}, {Opaque: "c2VjcmV0", Hidden: true}},
			Text:      "looking", Calls: []modelserver.Call{{ID: "c_1", Name: "read"}},
		}, modelserver.Turn{Text: "done", Repeat: true})
	var shown strings.Builder
	turn, err := g.Turn(t.Context(), scope(), say("go"), func(d string) { shown.WriteString(d) })
	if err != nil {
		t.Fatal(err)
	}
	p := turn.Message.Parts
	want := contract.Reasoning{Provider: "anthropic", Text: "First I look. Then — ünïcode — I think.", Opaque: "sig/9+="}
	if len(p) != 4 || p[0].Reasoning == nil || *p[0].Reasoning != want || p[1].Reasoning == nil || !p[1].Reasoning.Hidden || p[2].Text != "looking" || p[3].Call == nil {
		t.Fatalf("parts %+v", p)
	}
	if shown.String() != "looking" {
		t.Errorf("shown %q", shown.String())
	}
	next := say("go")
	next.Messages = append(next.Messages, turn.Message, contract.Message{Role: contract.MessageUser, Parts: []contract.Part{{Return: &contract.ToolReturn{ID: "c_1", Content: "x"}}}})
	if _, err := g.Turn(t.Context(), scope(), next, nil); err != nil {
		t.Fatal(err)
	}
	body := string(s.Requests()[1].Body)
	back := `{"role":"assistant","content":[{"signature":"sig/9+=","thinking":"First I look. Then — ünïcode — I think.","type":"thinking"},{"data":"c2VjcmV0","type":"redacted_thinking"},{"text":"looking","type":"text"},{"id":"c_1","input":{},"name":"read","type":"tool_use"}]}`
	if !same(body, back) {
		t.Errorf("sent %s", body)
	}
	other, s2, _ := play(t, modelserver.OpenAI, nil, modelserver.Turn{Text: "done"})
	if _, err := other.Turn(t.Context(), scope(), next, nil); err != nil {
		t.Fatal(err)
	}
	if body := string(s2.Requests()[0].Body); strings.Contains(body, "First I look") || strings.Contains(body, "sig/9") {
		t.Errorf("another provider was sent %s", body)
	}
}

// same reports whether one of the request's messages is want, whatever the order of its fields.
func same(body, want string) bool {
	var req struct{ Messages []any }
	var w any
	if json.Unmarshal([]byte(body), &req) != nil || json.Unmarshal([]byte(want), &w) != nil {
		return false
	}
	for _, m := range req.Messages {
		if fmt.Sprint(m) == fmt.Sprint(w) {
			return true
		}
	}
	return false
}

// TestReasoningOfCompatibleServices reads both names that services have for it.
func TestReasoningOfCompatibleServices(t *testing.T) {
	for _, field := range []string{"reasoning_content", "reasoning"} {
		g, _, _ := play(t, modelserver.OpenAI, nil, modelserver.Turn{Reasoning: []modelserver.Thought{{Text: "let me think about this for a while", Field: field}}, Text: "yes"})
		turn, err := g.Turn(t.Context(), scope(), say("go"), nil)
		if err != nil {
			t.Fatal(err)
		}
		p := turn.Message.Parts
		if len(p) != 2 || p[0].Reasoning == nil || p[0].Reasoning.Text != "let me think about this for a while" || p[0].Reasoning.Provider != "openai" || p[1].Text != "yes" {
			t.Errorf("%s: %+v", field, p)
		}
	}
}

// TestReasoningWithTheKeyIsNotSentBack: what was redacted is not what the service signed.
func TestReasoningWithTheKeyIsNotSentBack(t *testing.T) {
	g, _, _ := play(t, modelserver.Anthropic, nil, modelserver.Turn{Reasoning: []modelserver.Thought{{Text: "the key is " + canary, Opaque: "signed"}, {Text: "fine", Opaque: "x" + canary}}, Text: "hm"})
	turn, err := g.Turn(t.Context(), scope(), say("go"), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range turn.Message.Parts[:2] {
		if p.Reasoning == nil || p.Reasoning.Opaque != "" || strings.Contains(p.Reasoning.Text, canary) {
			t.Errorf("%+v", p.Reasoning)
		}
	}
}

// TestRefusalWhereverItArrives: as a stop reason, as a filter's, and in a field of its own with any finish.
func TestRefusalWhereverItArrives(t *testing.T) {
	for _, c := range []struct {
		wire modelserver.Wire
		turn modelserver.Turn
	}{
		{modelserver.Anthropic, modelserver.Turn{Text: "no", Stop: "refusal"}},
		{modelserver.OpenAI, modelserver.Turn{Text: "no", Stop: "refusal"}},
		{modelserver.OpenAI, modelserver.Turn{Refusal: "I can't help with that, and I won't say more.", Stop: "end"}},
	} {
		g, _, _ := play(t, c.wire, nil, c.turn)
		turn, err := g.Turn(t.Context(), scope(), say("go"), nil)
		if err != nil || turn.Stop != contract.StopRefusal || len(turn.Message.Parts) != 1 {
			t.Errorf("%s: %+v, %v", c.wire, turn, err)
		}
	}
}

// TestEffort shows how each kind of model is told how much to think.
func TestEffort(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.toml")
	if err := os.WriteFile(path, []byte(`
[[models]]
name = "openai/switch"
reasoning = "switch"
efforts = ["none", "high"]
[[models]]
name = "openai/always"
reasoning = "effort"
`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		model  string
		effort contract.Effort
		want   string // in the body; "" for nothing
	}{
		{"anthropic/claude-sonnet-4-6", "", `"thinking":{"display":"summarized","type":"adaptive"}`},
		{"anthropic/claude-sonnet-4-6", contract.EffortLow, `"effort":"low"`},
		{"anthropic/claude-sonnet-4-6", contract.EffortNone, `"thinking":{"type":"disabled"}`},
		{"anthropic/claude-opus-4-8", contract.EffortNone, `"effort":"low"`},
		{"anthropic/claude-haiku-4-5", "", ""},
		{"anthropic/claude-haiku-4-5", contract.EffortMedium, `"budget_tokens":8192`},
		{"anthropic/claude-haiku-4-5", contract.EffortNone, ""},
		{"anthropic/unknown", contract.EffortHigh, ""},
		{"openai/gpt-5.4", contract.EffortHigh, `"reasoning_effort":"high"`},
		{"openai/gpt-5.4", contract.EffortNone, `"reasoning_effort":"none"`},
		{"openai/gpt-5.4", "", ""},
		{"openai/always", contract.EffortNone, `"reasoning_effort":"low"`},
		{"openai/switch", contract.EffortLow, `"thinking":{"type":"enabled"}`},
		{"openai/switch", contract.EffortNone, `"thinking":{"type":"disabled"}`},
		{"openai/unknown", contract.EffortHigh, ""},
	} {
		wire := modelserver.Anthropic
		if strings.HasPrefix(c.model, "openai/") {
			wire = modelserver.OpenAI
		}
		g, s, _ := play(t, wire, func(o *gateway.Options) { o.Catalogue = path }, modelserver.Turn{Text: "x"})
		sc, req := scope(), say("go")
		sc.Model, req.Effort, req.MaxTokens = c.model, c.effort, 0
		if _, err := g.Turn(t.Context(), sc, req, nil); err != nil {
			t.Fatal(err)
		}
		body := string(s.Requests()[0].Body)
		if c.want == "" {
			if strings.Contains(body, "thinking") || strings.Contains(body, "effort") {
				t.Errorf("%s %q: sent %s", c.model, c.effort, body)
			}
		} else if !strings.Contains(body, c.want) {
			t.Errorf("%s %q: want %s, sent %s", c.model, c.effort, c.want, body)
		}
	}
}

// TestWhoseEffortCounts: the request's, else the scope's, else the owner's for the role.
func TestWhoseEffortCounts(t *testing.T) {
	for _, c := range []struct {
		request, scope contract.Effort
		role           contract.ActorKind
		want           string
	}{
		{contract.EffortLow, contract.EffortHigh, contract.KindDirector, `"reasoning_effort":"low"`},
		{"", contract.EffortHigh, contract.KindDirector, `"reasoning_effort":"high"`},
		{"", "", contract.KindDirector, `"reasoning_effort":"medium"`},
		{"", "", contract.KindAssociate, ""},
	} {
		g, s, _ := play(t, modelserver.OpenAI, func(o *gateway.Options) {
			o.Efforts = map[string]contract.Effort{string(contract.KindDirector): contract.EffortMedium}
		}, modelserver.Turn{Text: "x"})
		sc, req := scope(), say("go")
		sc.Model, sc.Effort, sc.Role, req.Effort = "openai/gpt-5.4", c.scope, string(c.role), c.request
		if _, err := g.Turn(t.Context(), sc, req, nil); err != nil {
			t.Fatal(err)
		}
		if body := string(s.Requests()[0].Body); c.want == "" && strings.Contains(body, "effort") || !strings.Contains(body, c.want) {
			t.Errorf("%+v: sent %s", c, body)
		}
	}
}

// TestThinkingDoesNotBeginInATurn: a model whose thinking is a number of tokens can't begin to think while its calls are answered.
func TestThinkingDoesNotBeginInATurn(t *testing.T) {
	g, s, _ := play(t, modelserver.Anthropic, nil, modelserver.Turn{Text: "x", Repeat: true})
	sc, req := scope(), say("go")
	sc.Model, req.Effort, req.MaxTokens = "claude-haiku-4-5", contract.EffortHigh, 0
	call := contract.Message{Role: contract.MessageAssistant, Parts: []contract.Part{{Call: &contract.ToolCall{ID: "c", Name: "read", Args: json.RawMessage("{}")}}}}
	back := contract.Message{Role: contract.MessageUser, Parts: []contract.Part{{Return: &contract.ToolReturn{ID: "c", Content: "x"}}}}
	thought := contract.Message{Role: contract.MessageAssistant, Parts: append([]contract.Part{{Reasoning: &contract.Reasoning{Provider: "anthropic", Text: "hm", Opaque: "s"}}}, call.Parts...)}
	for i, c := range []struct {
		messages []contract.Message
		thinks   bool
	}{
		{nil, true}, {[]contract.Message{call, back}, false}, {[]contract.Message{thought, back}, true},
	} {
		r := req
		r.Messages = append(append([]contract.Message{}, req.Messages...), c.messages...)
		if _, err := g.Turn(t.Context(), sc, r, nil); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(string(s.Requests()[i].Body), "budget_tokens"); got != c.thinks {
			t.Errorf("%d: thinks %v: %s", i, got, s.Requests()[i].Body)
		}
	}
}

// TestTheCatalogueSaysHowLongAnAnswerMayBe: max_tokens is the model's own, bounded by its window and the budget.
func TestTheCatalogueSaysHowLongAnAnswerMayBe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.toml")
	if err := os.WriteFile(path, []byte("[[models]]\nname = \"anthropic/small\"\ncontext = 20000\nmax_output = 16000\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		model  string
		asked  int
		text   int
		budget int64
		want   int64
	}{
		{"anthropic/claude-sonnet-4-6", 0, 10, 0, 64000},
		{"anthropic/claude-sonnet-4-6", 100, 10, 0, 100},
		{"anthropic/claude-sonnet-4-6", 999999, 10, 0, 64000},
		{"anthropic/unknown", 0, 10, 0, 8192},
		{"anthropic/small", 0, 10, 0, 16000},
		{"anthropic/small", 0, 30000, 0, 9907},
		{"anthropic/small", 0, 60000, 0, 8192},
		{"anthropic/claude-sonnet-4-6", 0, 10, 40100, 9993},
		{"anthropic/claude-sonnet-4-6", 0, 10, 4000, 3872},
	} {
		g, s, _ := play(t, modelserver.Anthropic, func(o *gateway.Options) { o.Catalogue = path }, modelserver.Turn{Text: "x"})
		sc, req := scope(), say(strings.Repeat("x", c.text))
		sc.Model, req.MaxTokens, sc.Budget.Tokens = c.model, c.asked, c.budget
		if _, err := g.Turn(t.Context(), sc, req, nil); err != nil {
			t.Fatal(err)
		}
		var sent struct {
			Max int64 `json:"max_tokens"`
		}
		if err := json.Unmarshal(s.Requests()[0].Body, &sent); err != nil {
			t.Fatal(err)
		}
		if d := sent.Max - c.want; d < -100 || d > 100 {
			t.Errorf("%+v: got %d", c, sent.Max)
		}
	}
}

type answerForm struct {
	Colour string `json:"colour"`
	Count  int    `json:"count"`
}

// TestStructuredOutput asks models that their service holds to a form, and one that can only be asked; what does not have the form
// is no answer.
func TestStructuredOutput(t *testing.T) {
	form := &contract.Output{Name: "a colour", Schema: json.RawMessage(`{"type":"object","additionalProperties":false,"required":["colour","count"],"properties":{"colour":{"type":"string"},"count":{"type":"integer","minimum":1}}}`)}
	for _, c := range []struct {
		model, sent, not string
	}{
		{"anthropic/claude-sonnet-4-6", `"output_config":{"format":{"schema":{"additionalProperties":false,"properties":{"colour":{"type":"string"},"count":{"type":"integer"}},`, "one JSON document"},
		{"openai/gpt-5.4", `"response_format":{"json_schema":{"name":"a_colour","strict":false,`, "one JSON document"},
		{"anthropic/claude-opus-4-8", "one JSON document that this JSON Schema describes", "output_config\":{\"format"},
		{"openai/unknown", "one JSON document that this JSON Schema describes", "response_format"},
	} {
		wire := modelserver.Anthropic
		if strings.HasPrefix(c.model, "openai/") {
			wire = modelserver.OpenAI
		}
		g, s, m := play(t, wire, nil,
			modelserver.Turn{Text: "```json\n{\"colour\":\"red\",\"count\":3}\n```"}, modelserver.Turn{Text: `{"colour":"red"}`}, modelserver.Turn{Text: `{"colour":"red","count":0}`})
		sc, req := scope(), say("which?")
		sc.Model, req.Output = c.model, form
		turn, err := g.Turn(t.Context(), sc, req, nil)
		if err != nil {
			t.Fatalf("%s: %v", c.model, err)
		}
		var a answerForm
		if err := json.Unmarshal([]byte(turn.Message.Parts[0].Text), &a); err != nil || a.Count != 3 {
			t.Errorf("%s: %q, %v", c.model, turn.Message.Parts[0].Text, err)
		}
		if body := string(s.Requests()[0].Body); !strings.Contains(body, c.sent) || strings.Contains(body, c.not) {
			t.Errorf("%s: sent %s", c.model, body)
		}
		for range 2 {
			if _, err := g.Turn(t.Context(), sc, req, nil); code(err) != gateway.CodeMalformed {
				t.Errorf("%s: %v", c.model, err)
			}
		}
		if all := m.taken(); len(all) != 3 || all[2].Outcome != gateway.CodeMalformed || all[2].Usage.TokensOut == 0 {
			t.Errorf("metered %+v", all)
		}
		req.Output = &contract.Output{Name: "x", Schema: json.RawMessage(`{"anyOf":[{"type":"string"}]}`)}
		if strings.Contains(c.sent, "one JSON") {
			if _, err := g.Turn(t.Context(), sc, req, nil); code(err) != "invalid" {
				t.Errorf("%s: a form that nobody checks was taken: %v", c.model, err)
			}
		}
	}
}

// pictures is a store of blobs by ref.
type pictures map[contract.BlobRef][]byte

func (p pictures) Open(_ context.Context, _ contract.CID, ref contract.BlobRef) (io.ReadSeekCloser, int64, error) {
	b, ok := p[ref]
	if !ok {
		return nil, 0, os.ErrNotExist
	}
	return struct {
		io.ReadSeeker
		io.Closer
	}{bytes.NewReader(b), io.NopCloser(nil)}, int64(len(b)), nil
}

// TestPictures shows a model pictures that are pictures, and tells it in words of all others, and a model that can't look of all.
func TestPictures(t *testing.T) {
	var drawn bytes.Buffer
	if err := png.Encode(&drawn, image.NewGray(image.Rect(0, 0, 3, 3))); err != nil {
		t.Fatal(err)
	}
	ref := func(n byte) contract.BlobRef { return contract.NewBlobRef([32]byte{n}) }
	store := pictures{ref(1): drawn.Bytes(), ref(2): []byte("<script>not a picture</script>"), ref(3): append(drawn.Bytes(), make([]byte, 4_000_000)...)}
	show := func(n byte) contract.Image { return contract.Image{Media: "image/jpeg", Ref: ref(n), Bytes: 10} }
	req := say("look")
	one := show(1)
	req.Messages = append(req.Messages,
		contract.Message{Role: contract.MessageAssistant, Parts: []contract.Part{{Call: &contract.ToolCall{ID: "c", Name: "read", Args: json.RawMessage("{}")}}}},
		contract.Message{Role: contract.MessageUser, Parts: []contract.Part{
			{Return: &contract.ToolReturn{ID: "c", Content: "a picture", Images: []contract.Image{show(1), show(2), show(3), show(4)}}}, {Image: &one}}})
	for _, c := range []struct {
		model       string
		able, words int
	}{
		{"anthropic/claude-sonnet-4-6", 2, 3}, {"openai/gpt-5.4", 2, 3}, {"anthropic/unknown", 0, 5}, {"openai/unknown", 0, 5},
	} {
		wire := modelserver.Anthropic
		if strings.HasPrefix(c.model, "openai/") {
			wire = modelserver.OpenAI
		}
		g, s, _ := play(t, wire, func(o *gateway.Options) { o.Blobs = store }, modelserver.Turn{Text: "x", Repeat: true})
		sc := scope()
		sc.Model = c.model
		if _, err := g.Turn(t.Context(), sc, req, nil); err != nil {
			t.Fatal(err)
		}
		body := string(s.Requests()[0].Body)
		if n := strings.Count(body, `"type":"image`); n != c.able {
			t.Errorf("%s: %d pictures: %s", c.model, n, body)
		}
		if n := strings.Count(body, "you are not shown"); n != c.words {
			t.Errorf("%s: %d sentences: %s", c.model, n, body)
		}
		if c.able > 0 && !strings.Contains(body, "image/png") {
			t.Errorf("%s: a picture is what its bytes say, not its sender: %s", c.model, body)
		}
		// However often one is repeated, there is a bound.
		many := req
		many.Messages = append([]contract.Message{}, req.Messages...)
		for range 30 {
			many.Messages[0].Parts = append(many.Messages[0].Parts[:len(many.Messages[0].Parts):len(many.Messages[0].Parts)], contract.Part{Image: &one})
		}
		if _, err := g.Turn(t.Context(), sc, many, nil); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(s.Requests()[1].Body), `"type":"image`); n > 20 {
			t.Errorf("%s: %d pictures", c.model, n)
		}
	}
}
