package inward

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"choir.dev/choiros/contract"
)

// completions is OpenAI's Chat Completions format.
type completions struct{}

// completionsRules are the fields of Chat Completions that can't be honoured.
var completionsRules = []rule{
	{"n", func(raw string) bool { return raw == "1" }, "only one answer is made"},
	{"logprobs", nil, "probabilities are not known here"},
	{"top_logprobs", nil, "probabilities are not known here"},
	{"logit_bias", nil, "probabilities can't be changed here"},
	{"stop", nil, "an answer can't be stopped at a text here"},
	{"store", nil, "nothing is stored here"},
	{"functions", nil, "give tools instead"},
	{"function_call", func(raw string) bool { return raw == `"auto"` || raw == `"none"` }, "give tool_choice instead"},
	{"modalities", func(raw string) bool { return raw == `["text"]` }, "answers are text"},
	{"audio", nil, "answers are text"},
	{"web_search_options", nil, "the host searches nothing for a program"},
}

// contentPart is a part of a message's content, in both of OpenAI's formats.
type contentPart struct {
	Type     string          `json:"type"`
	Text     string          `json:"text"`
	Refusal  string          `json:"refusal"`
	ImageURL json.RawMessage `json:"image_url"` // a text, or an object with url
}

func textPart(s string) contentPart { return contentPart{Type: "text", Text: s} }

// picture returns where a part's picture is.
func (p contentPart) picture() string {
	var s string
	var o struct {
		URL string `json:"url"`
	}
	if json.Unmarshal(p.ImageURL, &s) == nil {
		return s
	}
	_ = json.Unmarshal(p.ImageURL, &o) // what is no address is refused as one
	return o.URL
}

// part returns a content part as the contract has it; one without content is empty.
func (in *input) part(field string, who contract.MessageRole, p contentPart) (contract.Part, error) {
	switch {
	case p.Type == "text", p.Type == "input_text", p.Type == "output_text":
		return contract.Part{Text: p.Text}, nil
	case p.Type == "refusal":
		return contract.Part{Text: p.Refusal}, nil
	case (p.Type == "image_url" || p.Type == "input_image") && who == contract.MessageUser:
		image, err := in.dataURL(field+".image_url", p.picture())
		return contract.Part{Image: &image}, err
	}
	return contract.Part{}, wrong(field, "content of type %q can't be passed on from the role %s", contract.Shorten(p.Type, 60), who)
}

// parts returns a message's content.
func (in *input) parts(field string, who contract.MessageRole, raw json.RawMessage) ([]contract.Part, error) {
	content, err := list(field, raw, textPart)
	if err != nil {
		return nil, err
	}
	var out []contract.Part
	for i, p := range content {
		part, err := in.part(fmt.Sprintf("%s[%d]", field, i), who, p)
		if err != nil {
			return nil, err
		}
		out = append(out, part)
	}
	return out, nil
}

// words returns what is text of parts, and their pictures.
func words(parts []contract.Part) (string, []contract.Image) {
	var text []string
	var images []contract.Image
	for _, p := range parts {
		if p.Image != nil {
			images = append(images, *p.Image)
		} else {
			text = append(text, p.Text)
		}
	}
	return strings.Join(text, "\n"), images
}

// openaiOutput is the form of the answer's text, as OpenAI's formats ask for it.
type openaiOutput struct {
	Type       string          `json:"type"`
	Name       string          `json:"name"`
	Schema     json.RawMessage `json:"schema"`
	JSONSchema struct {
		Name   string          `json:"name"`
		Schema json.RawMessage `json:"schema"`
	} `json:"json_schema"`
}

func (o openaiOutput) output(field string) (*contract.Output, error) {
	name, schema := o.Name, o.Schema
	switch o.Type {
	case "", "text":
		return nil, nil
	case "json_object":
		name, schema = "answer", json.RawMessage(`{"type":"object"}`)
	case "json_schema":
		if len(o.JSONSchema.Schema) > 0 {
			name, schema = o.JSONSchema.Name, o.JSONSchema.Schema
		}
	default:
		return nil, wrong(field, "%q can't be honoured", contract.Shorten(o.Type, 60))
	}
	if name == "" {
		name = "answer"
	}
	return &contract.Output{Name: name, Schema: object(schema)}, nil
}

// choice reads OpenAI's tool_choice: a word, or an object that names a function.
func (a *asked) choice(raw json.RawMessage) error {
	if unset(string(raw)) {
		return nil
	}
	var word string
	if json.Unmarshal(raw, &word) == nil {
		if word == "tool" || word == "function" || word == "any" {
			return wrong("tool_choice", "%q can't be honoured", word)
		}
		return a.choose("tool_choice", word, "")
	}
	var o struct {
		Type     string `json:"type"`
		Name     string `json:"name"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	if err := json.Unmarshal(raw, &o); err != nil || o.Type != "function" {
		return wrong("tool_choice", "%q can't be honoured", contract.Shorten(o.Type, 60))
	}
	return a.choose("tool_choice", "function", o.Name+o.Function.Name)
}

type chatMessage struct {
	Role             string          `json:"role"`
	Content          json.RawMessage `json:"content"`
	Refusal          string          `json:"refusal"`
	ToolCallID       string          `json:"tool_call_id"`
	ReasoningDetails []struct {
		Text string `json:"text"`
		Data string `json:"data"`
	} `json:"reasoning_details"`
	ToolCalls []struct {
		ID       string `json:"id"`
		Type     string `json:"type"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

func (completions) decode(in *input, body []byte) (asked, error) {
	var r struct {
		Model    string        `json:"model"`
		Messages []chatMessage `json:"messages"`
		Tools    []struct {
			Type     string `json:"type"`
			Function struct {
				Name        string          `json:"name"`
				Description string          `json:"description"`
				Parameters  json.RawMessage `json:"parameters"`
			} `json:"function"`
		} `json:"tools"`
		ToolChoice          json.RawMessage `json:"tool_choice"`
		ParallelToolCalls   *bool           `json:"parallel_tool_calls"`
		MaxTokens           int             `json:"max_tokens"`
		MaxCompletionTokens int             `json:"max_completion_tokens"`
		ReasoningEffort     string          `json:"reasoning_effort"`
		ResponseFormat      openaiOutput    `json:"response_format"`
		Stream              bool            `json:"stream"`
		StreamOptions       struct {
			IncludeUsage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	a := asked{}
	if err := checked(body, &r, completionsRules); err != nil {
		return a, err
	}
	if err := bounded(len(r.Messages), len(r.Tools)); err != nil {
		return a, err
	}
	a.stream, a.usage = r.Stream, r.StreamOptions.IncludeUsage
	a.request.Model, a.request.MaxTokens = r.Model, max(r.MaxTokens, r.MaxCompletionTokens)
	a.single = r.ParallelToolCalls != nil && !*r.ParallelToolCalls
	var c conversation
	for i, m := range r.Messages {
		if err := in.chat(&c, fmt.Sprintf("messages[%d]", i), m); err != nil {
			return a, err
		}
	}
	c.into(&a.request)
	for i, t := range r.Tools {
		if t.Type != "function" {
			return a, wrong(fmt.Sprintf("tools[%d].type", i), "%q can't be offered to the model; only functions can", contract.Shorten(t.Type, 60))
		}
		a.request.Tools = append(a.request.Tools, contract.ToolSpec{Name: t.Function.Name, Description: t.Function.Description, Schema: object(t.Function.Parameters)})
	}
	if err := a.choice(r.ToolChoice); err != nil {
		return a, err
	}
	var err error
	if a.request.Effort, err = effort("reasoning_effort", r.ReasoningEffort); err != nil {
		return a, err
	}
	a.request.Output, err = r.ResponseFormat.output("response_format.type")
	return a, err
}

// chat adds a message to the conversation.
func (in *input) chat(c *conversation, field string, m chatMessage) error {
	who := contract.MessageUser
	switch m.Role {
	case "assistant":
		who = contract.MessageAssistant
	case "user", "system", "developer", "tool":
	default:
		return wrong(field+".role", "%q is not known", contract.Shorten(m.Role, 40))
	}
	parts, err := in.parts(field+".content", who, m.Content)
	if err != nil {
		return err
	}
	switch m.Role {
	case "system", "developer":
		text, _ := words(parts)
		c.instruct(text)
		return nil
	case "tool":
		text, images := words(parts)
		c.add(who, contract.Part{Return: &contract.ToolReturn{ID: m.ToolCallID, Content: text, Images: images}})
		return nil
	}
	if m.Refusal != "" {
		parts = append(parts, contract.Part{Text: m.Refusal})
	}
	c.add(who, parts...)
	if who == contract.MessageUser {
		return nil
	}
	for _, d := range m.ReasoningDetails {
		if at, r, ok := unseal(d.Data, d.Text); ok {
			c.think(at, r)
		}
	}
	for i, call := range m.ToolCalls {
		if call.Type != "" && call.Type != "function" {
			return wrong(fmt.Sprintf("%s.tool_calls[%d].type", field, i), "%q can't be passed on; only functions can", contract.Shorten(call.Type, 60))
		}
		c.add(who, contract.Part{Call: &contract.ToolCall{ID: call.ID, Name: call.Function.Name, Args: argumentsIn(call.Function.Arguments)}})
	}
	return nil
}

func (completions) problem(te *contract.TurnError) any { return openaiProblem(te) }

func openaiProblem(te *contract.TurnError) map[string]any {
	s := shapeOf(te)
	var code any
	if s.code != "" {
		code = s.code
	}
	return map[string]any{"error": map[string]any{"type": s.openai, "code": code, "param": nil,
		"message": message(te, "This model's maximum context length is exceeded")}}
}

func (completions) encoder(model string, a asked) encoder {
	return &completionsOut{id: newID("chatcmpl-"), model: model, usage: a.usage, created: time.Now().Unix()}
}

// completionsOut writes one completion.
type completionsOut struct {
	id, model string
	created   int64
	usage     bool
	calls     int
}

func completionsUsage(u contract.Usage) map[string]any {
	return map[string]any{"prompt_tokens": u.TokensIn, "completion_tokens": u.TokensOut, "total_tokens": u.TokensIn + u.TokensOut,
		"prompt_tokens_details": map[string]any{"cached_tokens": u.TokensCached}}
}

func completionsStop(s contract.StopReason) string {
	switch s {
	case contract.StopToolUse:
		return "tool_calls"
	case contract.StopLength, contract.StopTruncate:
		return "length"
	case contract.StopRefusal:
		return "content_filter"
	}
	return "stop"
}

// chatThought is a thought in the field that services other than the vendor's, and their clients, have for
// it; the vendor's format has none.
func chatThought(at int, r contract.Reasoning) map[string]any {
	return map[string]any{"type": "reasoning.encrypted", "text": r.Text, "data": seal(at, r)}
}

func (o *completionsOut) whole(turn contract.Turn, name string) any {
	m := map[string]any{"role": "assistant", "content": nil, "refusal": nil}
	var text, thoughts strings.Builder
	var calls, details []any
	for at, p := range turn.Message.Parts {
		switch {
		case p.Reasoning != nil:
			thoughts.WriteString(p.Reasoning.Text)
			details = append(details, chatThought(at, *p.Reasoning))
		case p.Call != nil:
			calls = append(calls, map[string]any{"id": p.Call.ID, "type": "function", "function": map[string]any{"name": p.Call.Name, "arguments": argumentsOut(p.Call.Args)}})
		default:
			text.WriteString(p.Text)
		}
	}
	if text.Len() > 0 || len(calls) == 0 {
		m["content"] = text.String()
	}
	if len(calls) > 0 {
		m["tool_calls"] = calls
	}
	if len(details) > 0 {
		m["reasoning_content"], m["reasoning_details"] = thoughts.String(), details
	}
	return map[string]any{"id": o.id, "object": "chat.completion", "created": o.created, "model": name,
		"choices": []any{map[string]any{"index": 0, "message": m, "logprobs": nil, "finish_reason": completionsStop(turn.Stop)}}, "usage": completionsUsage(turn.Usage)}
}

func (o *completionsOut) chunk(e *events, choices []any, usage any) {
	c := map[string]any{"id": o.id, "object": "chat.completion.chunk", "created": o.created, "model": o.model, "choices": choices}
	if o.usage {
		c["usage"] = usage
	}
	e.send("", c)
}

func (o *completionsOut) delta(e *events, delta map[string]any, finish any) {
	o.chunk(e, []any{map[string]any{"index": 0, "delta": delta, "logprobs": nil, "finish_reason": finish}}, nil)
}

func (o *completionsOut) begin(e *events) {
	o.delta(e, map[string]any{"role": "assistant", "content": ""}, nil)
}

func (o *completionsOut) ping(e *events) { e.raw(": the model has not said anything new\n\n") }

func (o *completionsOut) text(e *events, delta string) {
	o.delta(e, map[string]any{"content": delta}, nil)
}

func (o *completionsOut) thought(e *events, at int, r contract.Reasoning) {
	d := map[string]any{"reasoning_details": []any{chatThought(at, r)}}
	if r.Text != "" {
		d["reasoning_content"] = r.Text
	}
	o.delta(e, d, nil)
}

func (o *completionsOut) call(e *events, c contract.ToolCall) {
	o.delta(e, map[string]any{"tool_calls": []any{map[string]any{"index": o.calls, "id": c.ID, "type": "function",
		"function": map[string]any{"name": c.Name, "arguments": argumentsOut(c.Args)}}}}, nil)
	o.calls++
}

func (o *completionsOut) end(e *events, turn contract.Turn) {
	o.delta(e, map[string]any{}, completionsStop(turn.Stop))
	if o.usage {
		o.chunk(e, []any{}, completionsUsage(turn.Usage))
	}
	e.raw("data: [DONE]\n\n")
}

func (o *completionsOut) fail(e *events, te *contract.TurnError) { e.send("", openaiProblem(te)) }
