package inward

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"choir.dev/choiros/contract"
)

// responses is OpenAI's Responses format.
type responses struct{}

// responsesRules are the fields of Responses that can't be honoured.
var responsesRules = []rule{
	{"background", nil, "an answer is given while the program waits, or not at all"},
	{"store", nil, "nothing is stored here; send store: false"},
	{"previous_response_id", nil, "nothing is stored here; send the whole conversation as input"},
	{"conversation", nil, "nothing is stored here; send the whole conversation as input"},
	{"prompt", nil, "nothing is stored here; send instructions and input"},
	{"top_logprobs", nil, "probabilities are not known here"},
	{"include", func(raw string) bool { return !strings.Contains(raw, "logprobs") }, "probabilities are not known here"},
}

// item is an item of the input, or of the output of an earlier response.
type item struct {
	Type      string          `json:"type"`
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	ID        string          `json:"id"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments string          `json:"arguments"`
	Output    json.RawMessage `json:"output"`
	Summary   []struct {
		Text string `json:"text"`
	} `json:"summary"`
	EncryptedContent string `json:"encrypted_content"`
}

func (responses) decode(in *input, body []byte) (asked, error) {
	var r struct {
		Model        string          `json:"model"`
		Instructions string          `json:"instructions"`
		Input        json.RawMessage `json:"input"`
		Tools        []struct {
			Type        string          `json:"type"`
			Name        string          `json:"name"`
			Description string          `json:"description"`
			Parameters  json.RawMessage `json:"parameters"`
		} `json:"tools"`
		ToolChoice        json.RawMessage `json:"tool_choice"`
		ParallelToolCalls *bool           `json:"parallel_tool_calls"`
		MaxOutputTokens   int             `json:"max_output_tokens"`
		Reasoning         struct {
			Effort string `json:"effort"`
		} `json:"reasoning"`
		Text struct {
			Format openaiOutput `json:"format"`
		} `json:"text"`
		Stream bool `json:"stream"`
	}
	a := asked{}
	if err := checked(body, &r, responsesRules); err != nil {
		return a, err
	}
	a.stream, a.request.Model, a.request.MaxTokens = r.Stream, r.Model, r.MaxOutputTokens
	a.single = r.ParallelToolCalls != nil && !*r.ParallelToolCalls
	var items []item
	var text string
	if json.Unmarshal(r.Input, &text) == nil {
		b, err := json.Marshal(text)
		if err != nil {
			return a, err
		}
		items = []item{{Type: "message", Role: "user", Content: b}}
	} else if err := json.Unmarshal(r.Input, &items); err != nil {
		return a, wrong("input", "is neither a text nor a list of items that can be read")
	}
	if err := bounded(len(items), len(r.Tools)); err != nil {
		return a, err
	}
	var c conversation
	c.instruct(r.Instructions)
	for i, it := range items {
		if err := in.item(&c, fmt.Sprintf("input[%d]", i), it); err != nil {
			return a, err
		}
	}
	c.into(&a.request)
	for i, t := range r.Tools {
		if t.Type != "function" {
			return a, wrong(fmt.Sprintf("tools[%d].type", i), "%q can't be offered to the model; only functions that the program itself carries out can", contract.Shorten(t.Type, 60))
		}
		a.request.Tools = append(a.request.Tools, contract.ToolSpec{Name: t.Name, Description: t.Description, Schema: object(t.Parameters)})
	}
	if err := a.choice(r.ToolChoice); err != nil {
		return a, err
	}
	var err error
	if a.request.Effort, err = effort("reasoning.effort", r.Reasoning.Effort); err != nil {
		return a, err
	}
	a.request.Output, err = r.Text.Format.output("text.format.type")
	return a, err
}

// item adds an item to the conversation.
func (in *input) item(c *conversation, field string, it item) error {
	switch it.Type {
	case "", "message":
		who := contract.MessageUser
		switch it.Role {
		case "assistant":
			who = contract.MessageAssistant
		case "user", "system", "developer":
		default:
			return wrong(field+".role", "%q is not known", contract.Shorten(it.Role, 40))
		}
		parts, err := in.parts(field+".content", who, it.Content)
		if err != nil {
			return err
		}
		if it.Role == "system" || it.Role == "developer" {
			text, _ := words(parts)
			c.instruct(text)
			return nil
		}
		c.add(who, parts...)
	case "function_call":
		c.add(contract.MessageAssistant, contract.Part{Call: &contract.ToolCall{ID: it.CallID, Name: it.Name, Args: argumentsIn(it.Arguments)}})
	case "function_call_output":
		parts, err := in.parts(field+".output", contract.MessageUser, it.Output)
		if err != nil {
			return err
		}
		text, images := words(parts)
		c.add(contract.MessageUser, contract.Part{Return: &contract.ToolReturn{ID: it.CallID, Content: text, Images: images}})
	case "reasoning":
		var text []string
		for _, s := range it.Summary {
			text = append(text, s.Text)
		}
		if at, r, ok := unseal(it.EncryptedContent, strings.Join(text, "")); ok {
			c.think(at, r)
		}
	default:
		return wrong(field+".type", "an item of type %q can't be passed on to the model", contract.Shorten(it.Type, 60))
	}
	return nil
}

func (responses) problem(te *contract.TurnError) any { return openaiProblem(te) }

func (responses) encoder(model string, a asked) encoder {
	return &responsesOut{id: newID("resp_"), model: model, created: time.Now().Unix(), asked: a}
}

// responsesOut writes one response.
type responsesOut struct {
	id, model string
	created   int64
	asked     asked
	number    int    // of the next event
	items     []any  // that are complete
	message   string // id of the message that is open
	written   strings.Builder
}

func (o *responsesOut) response(status string, usage, problem, incomplete any) map[string]any {
	tools := []any{}
	for _, t := range o.asked.request.Tools {
		tools = append(tools, map[string]any{"type": "function", "name": t.Name, "description": t.Description, "parameters": t.Schema, "strict": false})
	}
	items := o.items
	if items == nil {
		items = []any{}
	}
	return map[string]any{"id": o.id, "object": "response", "created_at": o.created, "status": status, "model": o.model, "output": items,
		"error": problem, "incomplete_details": incomplete, "instructions": nil, "metadata": map[string]any{}, "parallel_tool_calls": !o.asked.single,
		"previous_response_id": nil, "store": false, "temperature": nil, "top_p": nil, "tool_choice": "auto", "tools": tools, "usage": usage}
}

func responsesUsage(u contract.Usage) map[string]any {
	return map[string]any{"input_tokens": u.TokensIn, "input_tokens_details": map[string]any{"cached_tokens": u.TokensCached},
		"output_tokens": u.TokensOut, "output_tokens_details": map[string]any{"reasoning_tokens": 0}, "total_tokens": u.TokensIn + u.TokensOut}
}

// done returns the finished response and the type of the event that says so.
func (o *responsesOut) done(turn contract.Turn) (map[string]any, string) {
	usage := responsesUsage(turn.Usage)
	switch turn.Stop {
	case contract.StopLength, contract.StopTruncate:
		return o.response("incomplete", usage, nil, map[string]any{"reason": "max_output_tokens"}), "response.incomplete"
	case contract.StopRefusal:
		return o.response("incomplete", usage, nil, map[string]any{"reason": "content_filter"}), "response.incomplete"
	}
	return o.response("completed", usage, nil, nil), "response.completed"
}

func outputText(text string) map[string]any {
	return map[string]any{"type": "output_text", "text": text, "annotations": []any{}, "logprobs": []any{}}
}

func messageItem(id, status string, content ...any) map[string]any {
	if content == nil {
		content = []any{}
	}
	return map[string]any{"type": "message", "id": id, "role": "assistant", "status": status, "content": content}
}

func callItem(id, status string, c contract.ToolCall, args string) map[string]any {
	return map[string]any{"type": "function_call", "id": id, "status": status, "call_id": c.ID, "name": c.Name, "arguments": args}
}

func thoughtItem(id string, at int, r contract.Reasoning) map[string]any {
	summary := []any{}
	if r.Text != "" && !r.Hidden {
		summary = append(summary, map[string]any{"type": "summary_text", "text": r.Text})
	}
	return map[string]any{"type": "reasoning", "id": id, "summary": summary, "encrypted_content": seal(at, r)}
}

func (o *responsesOut) whole(turn contract.Turn, name string) any {
	o.model = name
	for at, p := range turn.Message.Parts {
		switch {
		case p.Reasoning != nil:
			o.items = append(o.items, thoughtItem(newID("rs_"), at, *p.Reasoning))
		case p.Call != nil:
			o.items = append(o.items, callItem(newID("fc_"), "completed", *p.Call, argumentsOut(p.Call.Args)))
		case p.Text != "":
			o.items = append(o.items, messageItem(newID("msg_"), "completed", outputText(p.Text)))
		}
	}
	r, _ := o.done(turn)
	return r
}

// event writes an event under its number and, unless it is of the whole response, at the place of the item
// that is open.
func (o *responsesOut) event(e *events, kind string, v map[string]any) {
	v["type"], v["sequence_number"] = kind, o.number
	if _, whole := v["response"]; !whole {
		v["output_index"] = len(o.items)
	}
	o.number++
	e.send(kind, v)
}

func (o *responsesOut) begin(e *events) {
	o.event(e, "response.created", map[string]any{"response": o.response("in_progress", nil, nil, nil)})
	o.event(e, "response.in_progress", map[string]any{"response": o.response("in_progress", nil, nil, nil)})
}

func (o *responsesOut) ping(e *events) { e.raw(": the model has not said anything new\n\n") }

func (o *responsesOut) text(e *events, delta string) {
	if o.message == "" {
		o.message = newID("msg_")
		o.event(e, "response.output_item.added", map[string]any{"item": messageItem(o.message, "in_progress")})
		o.event(e, "response.content_part.added", map[string]any{"item_id": o.message, "content_index": 0, "part": outputText("")})
	}
	o.written.WriteString(delta)
	o.event(e, "response.output_text.delta", map[string]any{"item_id": o.message, "content_index": 0, "delta": delta, "logprobs": []any{}})
}

// close ends the message that is open.
func (o *responsesOut) close(e *events) {
	if o.message == "" {
		return
	}
	id, text := o.message, o.written.String()
	o.message = ""
	o.written.Reset()
	o.event(e, "response.output_text.done", map[string]any{"item_id": id, "content_index": 0, "text": text, "logprobs": []any{}})
	o.event(e, "response.content_part.done", map[string]any{"item_id": id, "content_index": 0, "part": outputText(text)})
	o.complete(e, messageItem(id, "completed", outputText(text)))
}

func (o *responsesOut) complete(e *events, it map[string]any) {
	o.event(e, "response.output_item.done", map[string]any{"item": it})
	o.items = append(o.items, it)
}

func (o *responsesOut) thought(e *events, at int, r contract.Reasoning) {
	o.close(e)
	id := newID("rs_")
	it := thoughtItem(id, at, r)
	o.event(e, "response.output_item.added", map[string]any{"item": map[string]any{"type": "reasoning", "id": id, "summary": []any{}}})
	if r.Text != "" && !r.Hidden {
		at := map[string]any{"item_id": id, "summary_index": 0}
		say := func(kind string, more map[string]any) {
			for k, v := range at {
				more[k] = v
			}
			o.event(e, kind, more)
		}
		say("response.reasoning_summary_part.added", map[string]any{"part": map[string]any{"type": "summary_text", "text": ""}})
		say("response.reasoning_summary_text.delta", map[string]any{"delta": r.Text})
		say("response.reasoning_summary_text.done", map[string]any{"text": r.Text})
		say("response.reasoning_summary_part.done", map[string]any{"part": map[string]any{"type": "summary_text", "text": r.Text}})
	}
	o.complete(e, it)
}

func (o *responsesOut) call(e *events, c contract.ToolCall) {
	o.close(e)
	id, args := newID("fc_"), argumentsOut(c.Args)
	o.event(e, "response.output_item.added", map[string]any{"item": callItem(id, "in_progress", c, "")})
	o.event(e, "response.function_call_arguments.delta", map[string]any{"item_id": id, "delta": args})
	o.event(e, "response.function_call_arguments.done", map[string]any{"item_id": id, "name": c.Name, "arguments": args})
	o.complete(e, callItem(id, "completed", c, args))
}

func (o *responsesOut) end(e *events, turn contract.Turn) {
	o.close(e)
	r, kind := o.done(turn)
	o.event(e, kind, map[string]any{"response": r})
}

func (o *responsesOut) fail(e *events, te *contract.TurnError) {
	s := shapeOf(te)
	code := s.code
	if code == "" {
		code = s.openai
	}
	problem := map[string]any{"code": code, "message": message(te, "Your input exceeds the context window of this model")}
	o.event(e, "response.failed", map[string]any{"response": o.response("failed", nil, problem, nil)})
}
