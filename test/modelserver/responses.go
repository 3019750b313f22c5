package modelserver

// told sends an event of the Responses format about output number index.
func (p *player) told(kind string, index int, v map[string]any) bool {
	v["type"], v["output_index"], v["sequence_number"] = kind, index, p.sequence
	p.sequence++
	return p.event(kind, v)
}

// response is the response object: its head while it is in progress, and all of it at its end.
func (p *player) response(status string) map[string]any {
	r := map[string]any{"id": "resp_1", "object": "response", "created_at": 1, "model": p.model, "status": status, "output": []any{}, "error": nil, "incomplete_details": nil, "usage": nil}
	if status == "in_progress" {
		return r
	}
	switch p.stop() {
	case "length":
		r["status"], r["incomplete_details"] = "incomplete", map[string]any{"reason": "max_output_tokens"}
	case "refusal":
		r["status"], r["incomplete_details"] = "incomplete", map[string]any{"reason": "content_filter"}
	case "failed":
		r["status"], r["error"] = "failed", map[string]any{"code": p.turn.Code, "message": p.turn.Text}
	}
	var output []any
	for _, item := range p.items() {
		output = append(output, item.whole)
	}
	if output != nil {
		r["output"] = output
	}
	if u := p.usage(); !u.Omit {
		r["usage"] = map[string]any{"input_tokens": u.In + u.CacheRead + u.CacheWrite, "output_tokens": u.Out, "total_tokens": u.In + u.CacheRead + u.CacheWrite + u.Out,
			"input_tokens_details": map[string]any{"cached_tokens": u.CacheRead, "cache_write_tokens": u.CacheWrite}, "output_tokens_details": map[string]any{"reasoning_tokens": 0}}
	}
	return r
}

// outputItem is one item of an answer: how it begins, its pieces, and what it is in the end.
type outputItem struct {
	begins, whole map[string]any
	kind          string // of its pieces
	pieces        []string
}

func (p *player) items() []outputItem {
	var out []outputItem
	for _, r := range p.turn.Reasoning {
		summary := []any{}
		if r.Text != "" {
			summary = append(summary, map[string]any{"type": "summary_text", "text": r.Text})
		}
		out = append(out, outputItem{
			begins: map[string]any{"type": "reasoning", "id": r.ID, "summary": []any{}}, kind: "response.reasoning_summary_text.delta", pieces: pieces(r.Text, 24),
			whole: map[string]any{"type": "reasoning", "id": r.ID, "summary": summary, "encrypted_content": r.Opaque},
		})
	}
	say := func(text, kind, part, field string) {
		if text != "" {
			out = append(out, outputItem{
				begins: map[string]any{"type": "message", "id": "msg_1", "role": "assistant", "status": "in_progress", "content": []any{}}, kind: kind, pieces: pieces(text, 24),
				whole: map[string]any{"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": []any{map[string]any{"type": part, field: text, "annotations": []any{}}}},
			})
		}
	}
	if p.turn.Stop != "failed" {
		say(p.turn.Text, "response.output_text.delta", "output_text", "text")
	}
	say(p.turn.Refusal, "response.refusal.delta", "refusal", "refusal")
	for _, c := range p.turn.Calls {
		item := func(args string) map[string]any {
			return map[string]any{"type": "function_call", "id": "fc_" + c.ID, "call_id": c.ID, "name": c.Name, "arguments": args}
		}
		out = append(out, outputItem{begins: item(""), kind: "response.function_call_arguments.delta", pieces: pieces(c.Raw, 24), whole: item(c.Raw)})
	}
	return out
}

func (p *player) responsesStart() bool {
	return p.told("response.created", 0, map[string]any{"response": p.response("in_progress")}) &&
		p.told("response.in_progress", 0, map[string]any{"response": p.response("in_progress")})
}

func (p *player) responsesStream() {
	p.w.Header().Set("Content-Type", "text/event-stream")
	if !p.responsesStart() {
		return
	}
	items := p.items()
	parts := make([][]string, len(items))
	for i, item := range items {
		parts[i] = item.pieces
	}
	if !p.each(parts, func(i int) bool {
		return p.told("response.output_item.added", p.at(i), map[string]any{"item": items[i].begins})
	}, func(i int, s string) bool {
		return p.told(items[i].kind, p.at(i), map[string]any{"delta": s})
	}, func(i int) bool {
		return p.told("response.output_item.done", p.at(i), map[string]any{"item": items[i].whole})
	}) {
		return
	}
	r := p.response("completed")
	p.told("response."+r["status"].(string), 0, map[string]any{"response": r})
}
