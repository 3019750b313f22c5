package modelserver

import (
	"encoding/json"
	"net/http"
)

func (p *player) anthropicUsage(u Usage) map[string]any {
	return map[string]any{"input_tokens": u.In, "output_tokens": u.Out, "cache_read_input_tokens": u.CacheRead, "cache_creation_input_tokens": u.CacheWrite}
}

var anthropicStop = map[string]string{"end": "end_turn", "tool_use": "tool_use", "length": "max_tokens", "refusal": "refusal"}

// stopOf is the format's word for how a turn stopped, which may be one that the script has.
func stopOf(words map[string]string, stop string) string {
	if w, ok := words[stop]; ok {
		return w
	}
	return stop
}

func (p *player) anthropicStart() bool {
	u := p.usage()
	start := Usage{In: u.In, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite, Out: 1}
	if u.Omit {
		start = Usage{}
	}
	return p.event("message_start", map[string]any{"type": "message_start", "message": map[string]any{
		"id": "msg_1", "type": "message", "role": "assistant", "model": p.model, "content": []any{}, "stop_reason": nil, "usage": p.anthropicUsage(start)}})
}

func (p *player) anthropicStream() {
	p.streams()
	p.anthropicStart()
	if p.turn.Stop == "failed" {
		if p.wire == Bedrock {
			p.exception(p.turn.Code, p.turn.Text)
		} else {
			p.event("error", map[string]any{"type": "error", "error": map[string]any{"type": p.turn.Code, "message": p.turn.Text}})
		}
		return
	}
	index := 0
	block := func(content map[string]any, deltas []map[string]any) bool {
		if !p.event("content_block_start", map[string]any{"type": "content_block_start", "index": index, "content_block": content}) {
			return false
		}
		for _, d := range deltas {
			if !p.event("content_block_delta", map[string]any{"type": "content_block_delta", "index": index, "delta": d}) {
				return false
			}
		}
		index++
		return p.event("content_block_stop", map[string]any{"type": "content_block_stop", "index": index - 1})
	}
	for _, r := range p.turn.Reasoning {
		if r.Hidden {
			block(map[string]any{"type": "redacted_thinking", "data": r.Opaque}, nil)
			continue
		}
		var deltas []map[string]any
		for _, s := range pieces(r.Text, 24) {
			deltas = append(deltas, map[string]any{"type": "thinking_delta", "thinking": s})
		}
		if r.Opaque != "" {
			deltas = append(deltas, map[string]any{"type": "signature_delta", "signature": r.Opaque})
		}
		if !block(map[string]any{"type": "thinking", "thinking": "", "signature": ""}, deltas) {
			return
		}
	}
	if p.turn.Text != "" {
		var deltas []map[string]any
		for _, s := range pieces(p.turn.Text, 24) {
			deltas = append(deltas, map[string]any{"type": "text_delta", "text": s})
		}
		if !block(map[string]any{"type": "text", "text": ""}, deltas) {
			return
		}
		p.event("ping", map[string]any{"type": "ping"})
	}
	first := index
	if !p.each(p.arguments(), func(i int) bool {
		c := p.turn.Calls[i]
		return p.event("content_block_start", map[string]any{"type": "content_block_start", "index": p.at(first + i),
			"content_block": map[string]any{"type": "tool_use", "id": c.ID, "name": c.Name, "input": map[string]any{}}})
	}, func(i int, s string) bool {
		return p.event("content_block_delta", map[string]any{"type": "content_block_delta", "index": p.at(first + i), "delta": map[string]any{"type": "input_json_delta", "partial_json": s}})
	}, func(i int) bool {
		return p.event("content_block_stop", map[string]any{"type": "content_block_stop", "index": p.at(first + i)})
	}) {
		return
	}
	if p.stop() == "none" {
		p.event("message_stop", map[string]any{"type": "message_stop"})
		return
	}
	delta := map[string]any{"type": "message_delta", "delta": map[string]any{"stop_reason": stopOf(anthropicStop, p.stop()), "stop_sequence": nil}}
	if u := p.usage(); !u.Omit {
		delta["usage"] = p.anthropicUsage(u)
	}
	p.event("message_delta", delta)
	p.event("message_stop", map[string]any{"type": "message_stop"})
}

func (p *player) anthropicWhole() {
	content := []any{}
	for _, r := range p.turn.Reasoning {
		if r.Hidden {
			content = append(content, map[string]any{"type": "redacted_thinking", "data": r.Opaque})
		} else {
			content = append(content, map[string]any{"type": "thinking", "thinking": r.Text, "signature": r.Opaque})
		}
	}
	if p.turn.Text != "" {
		content = append(content, map[string]any{"type": "text", "text": p.turn.Text})
	}
	for _, c := range p.turn.Calls {
		content = append(content, map[string]any{"type": "tool_use", "id": c.ID, "name": c.Name, "input": json.RawMessage(c.Args)})
	}
	writeJSON(p.w, map[string]any{"id": "msg_1", "type": "message", "role": "assistant", "model": p.model,
		"content": content, "stop_reason": stopOf(anthropicStop, p.stop()), "usage": p.anthropicUsage(p.usage())})
}

var openaiStop = map[string]string{"end": "stop", "tool_use": "tool_calls", "length": "length", "refusal": "content_filter"}

func (p *player) chunk(delta map[string]any, finish any) map[string]any {
	return map[string]any{"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": p.model,
		"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}}}
}

func (p *player) openaiUsage() map[string]any {
	u := p.usage()
	return map[string]any{"prompt_tokens": u.In + u.CacheRead, "completion_tokens": u.Out, "total_tokens": u.In + u.CacheRead + u.Out,
		"prompt_tokens_details": map[string]any{"cached_tokens": u.CacheRead}}
}

func (p *player) openaiStream() {
	p.w.Header().Set("Content-Type", "text/event-stream")
	if !p.event("", p.chunk(map[string]any{"role": "assistant", "content": ""}, nil)) {
		return
	}
	if p.turn.Stop == "failed" {
		p.write("data: " + string(Args(map[string]any{"error": map[string]any{"type": p.turn.Code, "message": p.turn.Text}})) + "\n\n")
		return
	}
	for _, r := range p.turn.Reasoning {
		for _, s := range pieces(r.Text, 24) {
			if !p.event("", p.chunk(map[string]any{r.field(): s}, nil)) {
				return
			}
		}
	}
	for _, s := range pieces(p.turn.Text, 24) {
		if !p.event("", p.chunk(map[string]any{"content": s}, nil)) {
			return
		}
	}
	for _, s := range pieces(p.turn.Refusal, 24) {
		if !p.event("", p.chunk(map[string]any{"refusal": s}, nil)) {
			return
		}
	}
	call := func(i int, v map[string]any) bool {
		v["index"] = p.at(i)
		return p.event("", p.chunk(map[string]any{"tool_calls": []any{v}}, nil))
	}
	if !p.each(p.arguments(), func(i int) bool {
		c := p.turn.Calls[i]
		return call(i, map[string]any{"id": c.ID, "type": "function", "function": map[string]any{"name": c.Name, "arguments": ""}})
	}, func(i int, s string) bool {
		return call(i, map[string]any{"function": map[string]any{"arguments": s}})
	}, func(int) bool { return true }) {
		return
	}
	if p.stop() == "none" {
		p.write("data: [DONE]\n\n")
		return
	}
	p.event("", p.chunk(map[string]any{}, stopOf(openaiStop, p.stop())))
	if !p.usage().Omit {
		last := p.chunk(map[string]any{}, nil)
		last["choices"], last["usage"] = []any{}, p.openaiUsage()
		p.event("", last)
	}
	p.write("data: [DONE]\n\n")
}

func (r Thought) field() string {
	if r.Field != "" {
		return r.Field
	}
	return "reasoning_content"
}

func (p *player) openaiWhole() {
	message := map[string]any{"role": "assistant", "content": p.turn.Text}
	for _, r := range p.turn.Reasoning {
		message[r.field()] = r.Text
	}
	if p.turn.Refusal != "" {
		message["refusal"] = p.turn.Refusal
	}
	var calls []any
	for _, c := range p.turn.Calls {
		calls = append(calls, map[string]any{"id": c.ID, "type": "function", "function": map[string]any{"name": c.Name, "arguments": c.Raw}})
	}
	if calls != nil {
		message["tool_calls"] = calls
	}
	writeJSON(p.w, map[string]any{"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": p.model,
		"choices": []any{map[string]any{"index": 0, "message": message, "finish_reason": stopOf(openaiStop, p.stop())}}, "usage": p.openaiUsage()})
}

var _ http.Handler = (*Server)(nil)
