package cassette

import (
	"encoding/json"
	"net/http"
)

// wire is a format in which services answer. Each streams an answer as server-sent events.
type wire interface {
	stream(http.ResponseWriter, answer)
	fail(w http.ResponseWriter, message string)
}

// events writes server-sent events.
type events struct{ w http.ResponseWriter }

func begin(w http.ResponseWriter) events {
	w.Header().Set("Content-Type", "text/event-stream")
	return events{w}
}

// send sends one event. That the client has gone is noticed by whoever waits for its answer.
func (e events) send(kind string, v any) {
	b, err := json.Marshal(v)
	if err != nil { // maps of strings and numbers can always be encoded
		return
	}
	if kind != "" {
		kind = "event: " + kind + "\n"
	}
	_, _ = e.w.Write([]byte(kind + "data: " + string(b) + "\n\n"))
}

type object = map[string]any

// refuse answers with an error that no client repeats.
func refuse(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusBadRequest)
	_ = json.NewEncoder(w).Encode(v) // the client may have gone
}

// anthropic is the format of Anthropic's Messages.
type anthropic struct{}

var anthropicStop = map[string]string{"end": "end_turn", "tool_use": "tool_use", "length": "max_tokens", "refusal": "refusal"}

func (anthropic) fail(w http.ResponseWriter, message string) {
	refuse(w, object{"type": "error", "error": object{"type": "invalid_request_error", "message": message}})
}

func (anthropic) stream(w http.ResponseWriter, a answer) {
	e := begin(w)
	usage := object{"input_tokens": a.in, "output_tokens": a.out, "cache_read_input_tokens": a.cached, "cache_creation_input_tokens": 0}
	e.send("message_start", object{"type": "message_start", "message": object{"id": "msg_cassette", "type": "message", "role": "assistant", "model": a.model,
		"content": []any{}, "stop_reason": nil, "usage": usage}})
	index := 0
	block := func(content, delta object) {
		e.send("content_block_start", object{"type": "content_block_start", "index": index, "content_block": content})
		e.send("content_block_delta", object{"type": "content_block_delta", "index": index, "delta": delta})
		e.send("content_block_stop", object{"type": "content_block_stop", "index": index})
		index++
	}
	if a.step.Text != "" {
		block(object{"type": "text", "text": ""}, object{"type": "text_delta", "text": a.step.Text})
	}
	for i, c := range a.step.Calls {
		block(object{"type": "tool_use", "id": a.ids[i], "name": c.Name, "input": object{}}, object{"type": "input_json_delta", "partial_json": string(c.Args)})
	}
	e.send("message_delta", object{"type": "message_delta", "delta": object{"stop_reason": anthropicStop[a.step.stop()], "stop_sequence": nil}, "usage": usage})
	e.send("message_stop", object{"type": "message_stop"})
}

// openai is the format of OpenAI's chat completions.
type openai struct{}

var openaiStop = map[string]string{"end": "stop", "tool_use": "tool_calls", "length": "length", "refusal": "content_filter"}

func (openai) fail(w http.ResponseWriter, message string) {
	refuse(w, object{"error": object{"message": message, "type": "invalid_request_error", "code": nil, "param": nil}})
}

func (openai) stream(w http.ResponseWriter, a answer) {
	e := begin(w)
	chunk := func(delta, finish any) object {
		return object{"id": "chatcmpl-cassette", "object": "chat.completion.chunk", "created": 1, "model": a.model,
			"choices": []any{object{"index": 0, "delta": delta, "finish_reason": finish}}}
	}
	e.send("", chunk(object{"role": "assistant", "content": a.step.Text}, nil))
	for i, c := range a.step.Calls {
		e.send("", chunk(object{"tool_calls": []any{object{"index": i, "id": a.ids[i], "type": "function", "function": object{"name": c.Name, "arguments": string(c.Args)}}}}, nil))
	}
	e.send("", chunk(object{}, openaiStop[a.step.stop()]))
	last := chunk(object{}, nil)
	last["choices"] = []any{}
	last["usage"] = object{"prompt_tokens": a.in + a.cached, "completion_tokens": a.out, "total_tokens": a.in + a.cached + a.out, "prompt_tokens_details": object{"cached_tokens": a.cached}}
	e.send("", last)
	_, _ = e.w.Write([]byte("data: [DONE]\n\n")) // the client may have gone
}
