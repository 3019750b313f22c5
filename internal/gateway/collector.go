package gateway

import (
	"encoding/json"
	"fmt"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/gateway/provider"
	"choir.dev/choiros/internal/lazy"
)

// maxBadArgs bounds how much is kept of arguments that are not JSON.
const maxBadArgs = 8 << 10

var (
	idPattern = lazy.Regexp(`^[a-zA-Z0-9_-]{1,64}$`)
	notName   = lazy.Regexp(`[^a-zA-Z0-9_-]`)
)

// collector is the Sink that keeps a turn within bounds and makes a message of it that the loop,
// and any provider later, can put into a conversation.
type collector struct {
	limits  Limits
	red     redactor
	onDelta func(string)

	text    strings.Builder
	held    string // the end of the text so far, which could be the beginning of a key
	calls   []*callParts
	byIndex map[int]*callParts
	taken   map[string]bool // ids of the conversation's earlier calls
	size    int
	shown   bool
	dropped bool
}

type callParts struct {
	id   string
	name strings.Builder
	args strings.Builder
}

func newCollector(l Limits, red redactor, onDelta func(string), req contract.TurnRequest) *collector {
	c := &collector{limits: l, red: red, onDelta: onDelta, byIndex: map[int]*callParts{}, taken: map[string]bool{}}
	for _, m := range req.Messages {
		for _, p := range m.Parts {
			if p.Call != nil {
				c.taken[p.Call.ID] = true
			}
		}
	}
	return c
}

// take returns as much of s as is still within bounds.
func (c *collector) take(s string) (string, error) {
	room := c.limits.Output - c.size
	if len(s) > room {
		c.size = c.limits.Output
		return s[:room], provider.ErrFull
	}
	c.size += len(s)
	return s, nil
}

// Text implements provider.Sink.
func (c *collector) Text(fragment string) error {
	s, err := c.take(fragment)
	s, c.held = c.red.stream(c.held + s)
	c.show(s)
	return err
}

func (c *collector) show(s string) {
	if s == "" {
		return
	}
	s = clean(s)
	c.text.WriteString(s)
	if c.onDelta != nil {
		c.shown = true
		c.onDelta(s)
	}
}

// flush passes on the text that was held back.
func (c *collector) flush() {
	s := c.red.secrets(c.held)
	c.held = ""
	c.show(s)
}

func (c *collector) call(index int) *callParts {
	if p := c.byIndex[index]; p != nil {
		return p
	}
	if len(c.calls) >= c.limits.Calls {
		c.dropped = true
		return nil
	}
	p := &callParts{}
	c.byIndex[index] = p
	c.calls = append(c.calls, p)
	return p
}

// Call implements provider.Sink.
func (c *collector) Call(index int, id, name string) error {
	p := c.call(index)
	if p == nil {
		return provider.ErrFull
	}
	if p.id == "" && len(id) <= 256 {
		p.id = id
	}
	if p.name.Len() == 0 || p.name.String() != name {
		// Some services send a name in several pieces; none needs more than this.
		if room := 256 - p.name.Len(); room > 0 {
			p.name.WriteString(name[:min(len(name), room)])
		}
	}
	return nil
}

// Args implements provider.Sink.
func (c *collector) Args(index int, fragment string) error {
	p := c.call(index)
	if p == nil {
		return provider.ErrFull
	}
	s, err := c.take(fragment)
	p.args.WriteString(s)
	return err
}

// message returns the finished answer: the text first, then the calls, with ids that are unique in
// the conversation, and names and arguments that every service accepts.
func (c *collector) message() contract.Message {
	c.flush()
	m := contract.Message{Role: contract.MessageAssistant, Parts: []contract.Part{}}
	if c.text.Len() > 0 {
		m.Parts = append(m.Parts, contract.Part{Text: c.text.String()})
	}
	for i, p := range c.calls {
		id := p.id
		if !idPattern().MatchString(id) || c.taken[id] {
			id = "call_" + strings.ReplaceAll(contract.NewID(), "-", "")
		}
		c.taken[id] = true
		name := notName().ReplaceAllString(clean(p.name.String()), "_")
		if len(name) > 64 {
			name = name[:64]
		}
		if name == "" {
			name = fmt.Sprintf("unnamed_%d", i+1)
		}
		m.Parts = append(m.Parts, contract.Part{Call: &contract.ToolCall{ID: id, Name: name, Args: c.args(p.args.String())}})
	}
	return m
}

// args returns the model's arguments as valid JSON: unchanged if they are, otherwise their
// beginning as a JSON string, which no tool accepts, so that the loop can tell the model what was
// wrong.
func (c *collector) args(s string) json.RawMessage {
	s = strings.TrimSpace(clean(c.red.secrets(s)))
	if s == "" {
		return json.RawMessage("{}")
	}
	if json.Valid([]byte(s)) {
		return json.RawMessage(s)
	}
	if len(s) > maxBadArgs {
		s = strings.ToValidUTF8(s[:maxBadArgs], "") + "…"
	}
	b, err := json.Marshal(s)
	if err != nil { // a string can always be encoded
		return json.RawMessage(`""`)
	}
	return b
}

// clean makes s valid UTF-8 without NUL, because the log and the database could not store it
// otherwise.
func clean(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	return strings.ReplaceAll(s, "\x00", "\uFFFD")
}
