package inward

import (
	"encoding/json"
	"fmt"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/gateway/provider"
)

// messages is Anthropic's Messages format.
type messages struct{}

// block is a content block, in either direction.
type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	Signature string          `json:"signature"`
	Data      string          `json:"data"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	IsError   bool            `json:"is_error"`
	Source    struct {
		Type      string `json:"type"`
		MediaType string `json:"media_type"`
		Data      string `json:"data"`
	} `json:"source"`
}

func textBlock(s string) block { return block{Type: "text", Text: s} }

// messagesRules are the fields of Messages that can't be honoured.
var messagesRules = []rule{
	{"stop_sequences", nil, "an answer can't be stopped at a text here"},
	{"mcp_servers", nil, "the host calls no servers for a program"},
	{"container", nil, "there are no containers of the vendor's service here"},
}

// messagesRequest is what is read of a request.
type messagesRequest struct {
	Model     string          `json:"model"`
	MaxTokens int             `json:"max_tokens"`
	System    json.RawMessage `json:"system"`
	Messages  []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	} `json:"messages"`
	Tools []struct {
		Type        string          `json:"type"`
		Name        string          `json:"name"`
		Description string          `json:"description"`
		InputSchema json.RawMessage `json:"input_schema"`
	} `json:"tools"`
	ToolChoice struct {
		Type                   string `json:"type"`
		Name                   string `json:"name"`
		DisableParallelToolUse bool   `json:"disable_parallel_tool_use"`
	} `json:"tool_choice"`
	Thinking struct {
		Type         string `json:"type"`
		BudgetTokens int    `json:"budget_tokens"`
	} `json:"thinking"`
	OutputConfig struct {
		Effort string        `json:"effort"`
		Format messageOutput `json:"format"`
	} `json:"output_config"`
	OutputFormat messageOutput `json:"output_format"`
	Stream       bool          `json:"stream"`
}

func (messages) decode(in *input, body []byte) (asked, error) {
	var r messagesRequest
	a := asked{}
	if err := checked(body, &r, messagesRules); err != nil {
		return a, err
	}
	if err := bounded(len(r.Messages), len(r.Tools)); err != nil {
		return a, err
	}
	a.stream, a.request.Model, a.request.MaxTokens = r.Stream, r.Model, r.MaxTokens
	a.single = r.ToolChoice.DisableParallelToolUse
	var c conversation
	if err := in.messages(&c, r); err != nil {
		return a, err
	}
	c.into(&a.request)
	for i, t := range r.Tools {
		if t.Type != "" && t.Type != "custom" {
			return a, wrong(fmt.Sprintf("tools[%d].type", i), "%q is carried out by the vendor's service, which is not here; only tools that the program itself carries out can be offered", contract.Shorten(t.Type, 60))
		}
		a.request.Tools = append(a.request.Tools, contract.ToolSpec{Name: t.Name, Description: t.Description, Schema: object(t.InputSchema)})
	}
	if err := a.choose("tool_choice", r.ToolChoice.Type, r.ToolChoice.Name); err != nil {
		return a, err
	}
	for _, f := range []messageOutput{r.OutputFormat, r.OutputConfig.Format} {
		if f.Type == "json_schema" {
			a.request.Output = &contract.Output{Name: "answer", Schema: f.Schema}
		}
	}
	var err error
	a.request.Effort, err = r.effort()
	return a, err
}

// messages adds the request's system prompt and messages to the conversation.
func (in *input) messages(c *conversation, r messagesRequest) error {
	system, err := list("system", r.System, textBlock)
	if err != nil {
		return err
	}
	for _, b := range system {
		c.instruct(b.Text)
	}
	for i, m := range r.Messages {
		field := fmt.Sprintf("messages[%d]", i)
		blocks, err := list(field+".content", m.Content, textBlock)
		if err != nil {
			return err
		}
		for j, b := range blocks {
			if err := in.block(c, fmt.Sprintf("%s.content[%d]", field, j), m.Role, b); err != nil {
				return err
			}
		}
	}
	return nil
}

// effort returns how much the model is to think.
func (r messagesRequest) effort() (contract.Effort, error) {
	e, err := effort("output_config.effort", r.OutputConfig.Effort)
	switch {
	case err != nil:
		return "", err
	case r.Thinking.Type == "disabled":
		return contract.EffortNone, nil
	case r.Thinking.Type == "enabled" && e == "":
		return measured(r.Thinking.BudgetTokens), nil
	}
	return e, nil
}

type messageOutput struct {
	Type   string          `json:"type"`
	Schema json.RawMessage `json:"schema"`
}

// measured returns the effort that a number of tokens to think in comes to.
func measured(tokens int) contract.Effort {
	switch {
	case tokens < 4096:
		return contract.EffortLow
	case tokens < 16384:
		return contract.EffortMedium
	}
	return contract.EffortHigh
}

// choose notes what a request demands of the answer's calls.
func (a *asked) choose(field, kind, name string) error {
	switch kind {
	case "", "auto":
	case "none":
		a.never = true
	case "any", "required":
		a.must = true
	case "tool", "function":
		a.must, a.only = true, name
		for _, t := range a.request.Tools {
			if t.Name == name {
				return nil
			}
		}
		return wrong(field, "names %q, which is no tool of the request", contract.Shorten(name, 60))
	default:
		return wrong(field, "%q can't be honoured", contract.Shorten(kind, 60))
	}
	if a.must && len(a.request.Tools) == 0 {
		return wrong(field, "demands a call, and the request has no tools")
	}
	return nil
}

// block adds a content block to the conversation.
func (in *input) block(c *conversation, field, role string, b block) error {
	who := contract.MessageUser
	switch role {
	case "user":
	case "assistant":
		who = contract.MessageAssistant
	case "system":
		c.instruct(b.Text)
		return nil
	default:
		return wrong(field, "is of the role %q, which is not known", contract.Shorten(role, 40))
	}
	switch {
	case b.Type == "text":
		c.add(who, contract.Part{Text: b.Text})
	case b.Type == "image" && who == contract.MessageUser:
		image, err := in.source(field, b)
		if err != nil {
			return err
		}
		c.add(who, contract.Part{Image: &image})
	case b.Type == "tool_use" && who == contract.MessageAssistant:
		c.add(who, contract.Part{Call: &contract.ToolCall{ID: b.ID, Name: b.Name, Args: object(b.Input)}})
	case b.Type == "tool_result" && who == contract.MessageUser:
		ret := contract.ToolReturn{ID: b.ToolUseID, IsError: b.IsError}
		inner, err := list(field+".content", b.Content, textBlock)
		if err != nil {
			return err
		}
		var text []string
		for k, i := range inner {
			switch i.Type {
			case "text":
				text = append(text, i.Text)
			case "image":
				image, err := in.source(fmt.Sprintf("%s.content[%d]", field, k), i)
				if err != nil {
					return err
				}
				ret.Images = append(ret.Images, image)
			default:
				return wrong(field, "a result has a block of type %q, which the model can't be shown", contract.Shorten(i.Type, 60))
			}
		}
		ret.Content = strings.Join(text, "\n")
		c.add(who, contract.Part{Return: &ret})
	case (b.Type == "thinking" || b.Type == "redacted_thinking") && who == contract.MessageAssistant:
		if at, r, ok := unseal(b.Signature+b.Data, b.Thinking); ok {
			c.think(at, r)
		}
	default:
		return wrong(field, "a block of type %q can't be passed on from the role %s", contract.Shorten(b.Type, 60), role)
	}
	return nil
}

func (in *input) source(field string, b block) (contract.Image, error) {
	if b.Source.Type != "base64" {
		return contract.Image{}, wrong(field+".source", "only pictures in the request itself, in base64, can be shown; the host fetches nothing")
	}
	return in.picture(field+".source", b.Source.MediaType, b.Source.Data)
}

func (messages) problem(te *contract.TurnError) any {
	return map[string]any{"type": "error", "error": map[string]any{"type": shapeOf(te).anthropic, "message": message(te, "prompt is too long")}, "request_id": nil}
}

func (messages) encoder(model string, _ asked) encoder {
	return &messagesOut{id: newID("msg_"), model: model}
}

// messagesOut writes one message.
type messagesOut struct {
	id, model string
	index     int
	open      bool // a text block
}

func (o *messagesOut) message(content []any, stop any, usage any) map[string]any {
	return map[string]any{"id": o.id, "type": "message", "role": "assistant", "model": o.model, "content": content,
		"stop_reason": stop, "stop_sequence": nil, "usage": usage}
}

func messagesUsage(u contract.Usage) map[string]any {
	return map[string]any{"input_tokens": u.TokensIn - u.TokensCached, "cache_read_input_tokens": u.TokensCached, "cache_creation_input_tokens": 0, "output_tokens": u.TokensOut}
}

func messagesStop(s contract.StopReason) string {
	switch s {
	case contract.StopToolUse:
		return "tool_use"
	case contract.StopLength, contract.StopTruncate:
		return "max_tokens"
	case contract.StopRefusal:
		return "refusal"
	}
	return "end_turn"
}

func messagesThought(at int, r contract.Reasoning) map[string]any {
	if r.Hidden {
		return map[string]any{"type": "redacted_thinking", "data": seal(at, r)}
	}
	return map[string]any{"type": "thinking", "thinking": r.Text, "signature": seal(at, r)}
}

func (o *messagesOut) whole(turn contract.Turn, name string) any {
	o.model = name
	content := []any{}
	for at, p := range turn.Message.Parts {
		switch {
		case p.Reasoning != nil:
			content = append(content, messagesThought(at, *p.Reasoning))
		case p.Call != nil:
			content = append(content, map[string]any{"type": "tool_use", "id": p.Call.ID, "name": p.Call.Name, "input": provider.Arguments(p.Call.Args)})
		case p.Text != "":
			content = append(content, map[string]any{"type": "text", "text": p.Text})
		}
	}
	return o.message(content, messagesStop(turn.Stop), messagesUsage(turn.Usage))
}

func (o *messagesOut) begin(e *events) {
	o.event(e, "message_start", map[string]any{"message": o.message([]any{}, nil, messagesUsage(contract.Usage{}))})
}

func (o *messagesOut) ping(e *events) { o.event(e, "ping", map[string]any{}) }

func (o *messagesOut) event(e *events, kind string, v map[string]any) {
	v["type"] = kind
	e.send(kind, v)
}

func (o *messagesOut) start(e *events, content map[string]any) {
	o.event(e, "content_block_start", map[string]any{"index": o.index, "content_block": content})
}

func (o *messagesOut) delta(e *events, delta map[string]any) {
	o.event(e, "content_block_delta", map[string]any{"index": o.index, "delta": delta})
}

func (o *messagesOut) stop(e *events) {
	o.event(e, "content_block_stop", map[string]any{"index": o.index})
	o.index++
}

func (o *messagesOut) close(e *events) {
	if o.open {
		o.stop(e)
		o.open = false
	}
}

func (o *messagesOut) text(e *events, delta string) {
	if !o.open {
		o.open = true
		o.start(e, map[string]any{"type": "text", "text": ""})
	}
	o.delta(e, map[string]any{"type": "text_delta", "text": delta})
}

func (o *messagesOut) thought(e *events, at int, r contract.Reasoning) {
	o.close(e)
	if r.Hidden {
		o.start(e, messagesThought(at, r))
		o.stop(e)
		return
	}
	o.start(e, map[string]any{"type": "thinking", "thinking": "", "signature": ""})
	if r.Text != "" {
		o.delta(e, map[string]any{"type": "thinking_delta", "thinking": r.Text})
	}
	o.delta(e, map[string]any{"type": "signature_delta", "signature": seal(at, r)})
	o.stop(e)
}

func (o *messagesOut) call(e *events, c contract.ToolCall) {
	o.close(e)
	o.start(e, map[string]any{"type": "tool_use", "id": c.ID, "name": c.Name, "input": map[string]any{}})
	o.delta(e, map[string]any{"type": "input_json_delta", "partial_json": string(provider.Arguments(c.Args))})
	o.stop(e)
}

func (o *messagesOut) end(e *events, turn contract.Turn) {
	o.close(e)
	o.event(e, "message_delta", map[string]any{"delta": map[string]any{"stop_reason": messagesStop(turn.Stop), "stop_sequence": nil}, "usage": messagesUsage(turn.Usage)})
	o.event(e, "message_stop", map[string]any{})
}

func (o *messagesOut) fail(e *events, te *contract.TurnError) {
	e.send("error", messages{}.problem(te))
}
