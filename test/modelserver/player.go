package modelserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
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

func (p *player) write(s string) bool {
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
