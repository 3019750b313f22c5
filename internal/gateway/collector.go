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

	provider string
	parts    []*part // in the order in which they began
	held     string  // the end of the text so far, which could be the beginning of a key
	calls    int
	byIndex  map[int]*part
	thoughts map[int]*part
	taken    map[string]bool // ids of the conversation's earlier calls
	size     int
	shown    bool
	dropped  bool
	cut      bool // the answer was cut off, maybe inside the last call's arguments
	// progress is called when something of the answer arrived.
	progress func()
}

// part is a text, a call or a piece of reasoning that arrives.
type part struct {
	kind   partKind
	id     string
	name   strings.Builder
	text   strings.Builder // or a call's arguments
	opaque strings.Builder
	hidden bool
	broken bool // part of opaque did not fit
	again  bool // a call that is all there was named once more
}

type partKind int

const (
	textPart partKind = iota
	callPart
	reasoningPart
)

func newCollector(l Limits, red redactor, onDelta func(string), provider string, req contract.TurnRequest) *collector {
	c := &collector{limits: l, red: red, onDelta: onDelta, provider: provider, byIndex: map[int]*part{}, thoughts: map[int]*part{}, taken: map[string]bool{}}
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

// grows says that something of the answer arrived.
func (c *collector) grows() {
	if c.progress != nil {
		c.progress()
	}
}

// Text implements provider.Sink.
func (c *collector) Text(fragment string) error {
	if fragment != "" {
		c.grows()
	}
	s, err := c.take(fragment)
	if s != "" {
		c.current() // it begins here, even if all of it is held back
	}
	s, c.held = c.red.stream(c.held + s)
	c.show(s)
	return err
}

func (c *collector) show(s string) {
	if s == "" {
		return
	}
	s = clean(s)
	c.current().text.WriteString(s)
	if c.onDelta != nil {
		c.shown = true
		c.onDelta(s)
	}
}

// current returns the part that text is added to: the last text, unless there was reasoning since.
func (c *collector) current() *part {
	for i := len(c.parts) - 1; i >= 0 && c.parts[i].kind != reasoningPart; i-- {
		if c.parts[i].kind == textPart {
			return c.parts[i]
		}
	}
	p := &part{kind: textPart}
	c.parts = append(c.parts, p)
	return p
}

// Reasoning implements provider.Sink.
func (c *collector) Reasoning(index int, r contract.Reasoning) error {
	c.grows()
	p := c.thoughts[index]
	if p == nil {
		if len(c.thoughts) >= c.limits.Calls {
			return provider.ErrFull
		}
		c.flush()
		p = &part{kind: reasoningPart}
		c.thoughts[index] = p
		c.parts = append(c.parts, p)
	}
	if r.ID != "" && len(r.ID) <= 256 {
		p.id = r.ID
	}
	p.hidden = p.hidden || r.Hidden
	text, err := c.take(r.Text)
	p.text.WriteString(text)
	if err != nil {
		p.broken = true
		return err
	}
	opaque, err := c.take(r.Opaque)
	p.opaque.WriteString(opaque)
	p.broken = p.broken || err != nil
	return err
}

// flush passes on the text that was held back.
func (c *collector) flush() {
	s := c.red.secrets(c.held)
	c.held = ""
	c.show(s)
}

func (c *collector) call(index int) *part {
	if p := c.byIndex[index]; p != nil {
		return p
	}
	if c.calls >= c.limits.Calls {
		c.dropped = true
		return nil
	}
	p := &part{kind: callPart}
	c.byIndex[index] = p
	c.parts = append(c.parts, p)
	c.calls++
	return p
}

// Call implements provider.Sink.
func (c *collector) Call(index int, id, name string) error {
	c.grows()
	if p := c.byIndex[index]; p != nil && p.ends(id, name) {
		delete(c.byIndex, index)
	}
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

// ends reports whether an announcement under a call's index is of another call: some services give all calls of an
// answer the same index, and some announce a call with each of its pieces.
func (p *part) ends(id, name string) bool {
	args := p.text.String()
	done := whole(args)
	switch {
	case name == "" || args != "" && !done:
		return false
	case id != "" && p.id != "" && id != p.id, done && name != p.name.String():
		return true
	}
	p.again = done
	return false
}

// Args implements provider.Sink.
func (c *collector) Args(index int, fragment string) error {
	if fragment != "" {
		c.grows()
	}
	if p := c.byIndex[index]; p != nil && p.again && strings.TrimSpace(fragment) != "" {
		delete(c.byIndex, index)
		if err := c.Call(index, p.id, p.name.String()); err != nil {
			return err
		}
	}
	p := c.call(index)
	if p == nil {
		return provider.ErrFull
	}
	s, err := c.take(fragment)
	p.text.WriteString(s)
	return err
}

// message returns the finished answer: its parts in the order in which they began, the calls with ids that are unique
// in the conversation, and names and arguments that every service accepts.
func (c *collector) message() contract.Message {
	c.flush()
	m := contract.Message{Role: contract.MessageAssistant, Parts: []contract.Part{}}
	calls, made := 0, map[string]bool{}
	for _, p := range c.parts {
		switch p.kind {
		case textPart:
			if p.text.Len() > 0 {
				m.Parts = append(m.Parts, contract.Part{Text: p.text.String()})
			}
		case reasoningPart:
			if r := c.reasoning(p); r != nil {
				m.Parts = append(m.Parts, contract.Part{Reasoning: r})
			}
		case callPart:
			calls++
			if key := p.key(); key != "" && made[key] {
				continue // the service sent it twice
			} else if key != "" {
				made[key] = true
			}
			m.Parts = append(m.Parts, contract.Part{Call: c.toolCall(p, calls)})
		}
	}
	return m
}

// key tells a call from every other of its answer, "" if that can't be told: a model's calls have ids of their own.
func (p *part) key() string {
	if p.id == "" || !whole(p.text.String()) {
		return ""
	}
	return p.id + "\x00" + p.name.String() + "\x00" + strings.TrimSpace(p.text.String())
}

// reasoning returns what the model thought. A service believes its own words only unchanged: if the key was in them, or
// not all of them fitted, they are kept to be read, and not to be sent back.
func (c *collector) reasoning(p *part) *contract.Reasoning {
	said, opaque := p.text.String(), p.opaque.String()
	text := clean(c.red.secrets(said))
	if text != said || p.broken || clean(c.red.secrets(opaque)) != opaque {
		opaque = ""
	}
	if text == "" && opaque == "" {
		return nil
	}
	return &contract.Reasoning{Provider: c.provider, Text: text, ID: clean(c.red.secrets(p.id)), Opaque: opaque, Hidden: p.hidden}
}

func (c *collector) toolCall(p *part, number int) *contract.ToolCall {
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
		name = fmt.Sprintf("unnamed_%d", number)
	}
	call := &contract.ToolCall{ID: id, Name: name, Args: c.args(p.text.String())}
	if c.cut && number == c.calls && !whole(p.text.String()) {
		call.Cut, call.Arrived = true, int64(p.text.Len())
	}
	return call
}

// whole reports whether a call's arguments are all there.
func whole(args string) bool {
	args = strings.TrimSpace(args)
	return strings.HasPrefix(args, "{") && json.Valid([]byte(args))
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
