package modelserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"
)

// player plays one turn as the answer to one request.
type player struct {
	w       http.ResponseWriter
	r       *http.Request
	wire    Wire
	turn    Turn
	req     Request
	model   string
	maxOut  int64
	closing chan struct{}

	sequence int // of the next event, in formats that number them
}

func (p *player) play() {
	f := p.turn.Fault
	if f == nil {
		p.send()
		return
	}
	switch f.Kind {
	case "status":
		if f.RetryAfter != "" {
			p.w.Header().Set("Retry-After", f.RetryAfter)
		}
		fail(p.w, p.wire, f.Status, p.turn.Text)
	case "hang":
		p.hang()
	case "stall":
		p.begin()
		p.hang()
	case "cut":
		p.begin()
		panic(http.ErrAbortHandler)
	case "garbage":
		p.w.Header().Set("Content-Type", "application/octet-stream")
		p.write("\x00\xff\xfe<html>{]not an answer\n\n\x80data")
	case "big_text":
		p.turn.Text = strings.Repeat("0123456789abcde\n", 10<<16)
		p.send()
	case "endless":
		p.endless()
	case "many_calls":
		p.turn.Calls = nil
		for i := range 1000 {
			p.turn.Calls = append(p.turn.Calls, Call{ID: fmt.Sprintf("c%d", i), Name: "ls", Raw: "{}", Args: json.RawMessage("{}")})
		}
		p.send()
	case "long_name":
		p.turn.Calls = []Call{{ID: "c1", Name: strings.Repeat("n", 1_000_000), Raw: "{}", Args: json.RawMessage("{}")}}
		p.send()
	case "echo_key":
		p.turn.Text = "your key is " + p.req.Key + ", is it not?"
		p.send()
	case "leak":
		fail(p.w, p.wire, http.StatusUnauthorized, "Incorrect API key provided: "+p.req.Key)
	case "late":
		if p.pause() {
			p.send()
		}
	case "drip", "interleaved", "index_zero":
		p.send()
	case "pings":
		p.pings()
	case "thoughts", "arguments":
		p.unending(f.Kind)
	case "redirect":
		p.w.Header().Set("Location", f.Location)
		p.w.WriteHeader(http.StatusTemporaryRedirect)
	default:
		fail(p.w, p.wire, http.StatusInternalServerError, "the script has an unknown fault: "+f.Kind)
	}
}

// hang waits until the client or the server gives up.
func (p *player) hang() {
	select {
	case <-p.r.Context().Done():
	case <-p.closing:
	}
}

// has reports whether the turn goes wrong in a way.
func (p *player) has(kind string) bool { return p.turn.Fault != nil && p.turn.Fault.Kind == kind }

// pause waits for as long as the fault says, and reports whether the client is still there.
func (p *player) pause() bool {
	timer := time.NewTimer(time.Duration(p.turn.Fault.PauseMS) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.r.Context().Done():
	case <-p.closing:
	}
	return false
}

func (p *player) write(s string) bool {
	if p.has("drip") && !p.pause() {
		return false
	}
	select {
	case <-p.closing:
		return false
	default:
	}
	if _, err := p.w.Write([]byte(s)); err != nil {
		return false
	}
	return http.NewResponseController(p.w).Flush() == nil
}

func (p *player) event(kind string, v any) bool {
	b, err := json.Marshal(v)
	if err != nil {
		panic("modelserver: " + err.Error())
	}
	if p.wire == Bedrock {
		return p.chunk64(b)
	}
	if p.wire != OpenAI {
		return p.write("event: " + kind + "\ndata: " + string(b) + "\n\n")
	}
	return p.write("data: " + string(b) + "\n\n")
}

func (p *player) usage() Usage {
	if p.turn.Usage != nil {
		u := *p.turn.Usage
		if p.maxOut > 0 && !u.Exact {
			u.Out = min(u.Out, p.maxOut)
		}
		return u
	}
	n := len(p.turn.Text)
	for _, c := range p.turn.Calls {
		n += len(c.Raw)
	}
	return Usage{In: int64(len(p.req.Text)/4 + 1), Out: int64(n/4 + 1)}
}

func (p *player) stop() string {
	if p.turn.Stop != "" {
		return p.turn.Stop
	}
	if len(p.turn.Calls) > 0 {
		return "tool_use"
	}
	return "end"
}

// pieces cuts a text into parts of n bytes, as for a stream, and no character in two.
func pieces(s string, n int) []string {
	if len(s) > 1<<16 {
		n = 1 << 14
	}
	var out []string
	for len(s) > n {
		cut := n
		for cut < len(s) && !utf8.RuneStart(s[cut]) {
			cut++
		}
		out, s = append(out, s[:cut]), s[cut:]
	}
	if s != "" {
		out = append(out, s)
	}
	return out
}

func (p *player) send() {
	switch {
	case p.messages() && p.req.Stream:
		p.anthropicStream()
	case p.messages():
		p.anthropicWhole()
	case p.wire == Responses && p.req.Stream:
		p.responsesStream()
	case p.wire == Responses:
		writeJSON(p.w, p.response("completed"))
	case p.req.Stream:
		p.openaiStream()
	default:
		p.openaiWhole()
	}
}

// messages reports whether events are those of Anthropic's format.
func (p *player) messages() bool { return p.wire == Anthropic || p.wire == Bedrock }

// streams says that the answer is a stream.
func (p *player) streams() {
	kind := "text/event-stream"
	if p.wire == Bedrock {
		kind = "application/vnd.amazon.eventstream"
	}
	p.w.Header().Set("Content-Type", kind)
}

// head sends what a stream begins with.
func (p *player) head() {
	p.streams()
	switch p.wire {
	case Anthropic, Bedrock:
		p.anthropicStart()
	case Responses:
		p.responsesStart()
	default:
		p.event("", p.chunk(map[string]any{"role": "assistant", "content": ""}, nil))
	}
}

// pings sends signs of life, and nothing else.
func (p *player) pings() {
	p.head()
	for p.pause() {
		ok := false
		if p.messages() {
			ok = p.event("ping", map[string]any{"type": "ping"})
		} else {
			ok = p.write(": ping\n\n")
		}
		if !ok {
			return
		}
	}
}

// unending sends thoughts, or the arguments of a call, for as long as the client reads them.
func (p *player) unending(what string) {
	const more = "on and on and on and on and on and on and on "
	p.head()
	call := Call{ID: "c1", Name: "ls"}
	var first, next func() bool
	switch {
	case p.messages():
		block, delta := map[string]any{"type": "thinking", "thinking": "", "signature": ""}, map[string]any{"type": "thinking_delta", "thinking": more}
		if what == "arguments" {
			block, delta = map[string]any{"type": "tool_use", "id": call.ID, "name": call.Name, "input": map[string]any{}}, map[string]any{"type": "input_json_delta", "partial_json": more}
		}
		first = func() bool {
			return p.event("content_block_start", map[string]any{"type": "content_block_start", "index": 0, "content_block": block})
		}
		next = func() bool {
			return p.event("content_block_delta", map[string]any{"type": "content_block_delta", "index": 0, "delta": delta})
		}
	case p.wire == Responses:
		item, kind := map[string]any{"type": "reasoning", "id": "rs_1", "summary": []any{}}, "response.reasoning_summary_text.delta"
		if what == "arguments" {
			item, kind = map[string]any{"type": "function_call", "id": "fc_1", "call_id": call.ID, "name": call.Name, "arguments": ""}, "response.function_call_arguments.delta"
		}
		first = func() bool { return p.told("response.output_item.added", 0, map[string]any{"item": item}) }
		next = func() bool { return p.told(kind, 0, map[string]any{"delta": more}) }
	default:
		first = func() bool { return true }
		next = func() bool { return p.event("", p.chunk(map[string]any{"reasoning_content": more}, nil)) }
		if what == "arguments" {
			part := func(v map[string]any) bool {
				v["index"] = 0
				return p.event("", p.chunk(map[string]any{"tool_calls": []any{v}}, nil))
			}
			first = func() bool {
				return part(map[string]any{"id": call.ID, "type": "function", "function": map[string]any{"name": call.Name, "arguments": ""}})
			}
			next = func() bool { return part(map[string]any{"function": map[string]any{"arguments": more}}) }
		}
	}
	for ok := first(); ok && p.r.Context().Err() == nil; ok = next() {
	}
}

// each sends n things that come in pieces: one after the other, or their pieces in turns.
func (p *player) each(parts [][]string, begin func(i int) bool, piece func(i int, s string) bool, end func(i int) bool) bool {
	all := func(i int) bool {
		for _, s := range parts[i] {
			if !piece(i, s) {
				return false
			}
		}
		return true
	}
	if !p.has("interleaved") {
		for i := range parts {
			if !begin(i) || !all(i) || !end(i) {
				return false
			}
		}
		return true
	}
	most := 0
	for i := range parts {
		most = max(most, len(parts[i]))
		if !begin(i) {
			return false
		}
	}
	for n := range most {
		for i := range parts {
			if n < len(parts[i]) && !piece(i, parts[i][n]) {
				return false
			}
		}
	}
	for i := range parts {
		if !end(i) {
			return false
		}
	}
	return true
}

// arguments are the pieces of the calls' arguments.
func (p *player) arguments() [][]string {
	out := make([][]string, len(p.turn.Calls))
	for i, c := range p.turn.Calls {
		out[i] = pieces(c.Raw, 24)
	}
	return out
}

// at is the index under which thing i is sent.
func (p *player) at(i int) int {
	if p.has("index_zero") {
		return 0
	}
	return i
}

// begin sends everything before the first text, and one piece of text.
func (p *player) begin() {
	p.streams()
	switch p.wire {
	case Anthropic, Bedrock:
		p.anthropicStart()
		p.event("content_block_start", map[string]any{"type": "content_block_start", "index": 0, "content_block": map[string]any{"type": "text", "text": ""}})
	case Responses:
		p.responsesStart()
	}
	p.text("begin ")
}

func (p *player) text(s string) bool {
	if p.messages() {
		return p.event("content_block_delta", map[string]any{"type": "content_block_delta", "index": 0, "delta": map[string]any{"type": "text_delta", "text": s}})
	}
	if p.wire == Responses {
		return p.told("response.output_text.delta", 0, map[string]any{"content_index": 0, "delta": s})
	}
	return p.event("", p.chunk(map[string]any{"content": s}, nil))
}

func (p *player) endless() {
	p.begin()
	for p.text("and on and on and on and on and on and on and on and on ") {
		if p.r.Context().Err() != nil {
			return
		}
	}
}
