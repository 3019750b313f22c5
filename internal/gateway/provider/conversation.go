package provider

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/lazy"
)

// These are the sentences that stand where a service demands something and the conversation has nothing.
const (
	noReturn  = "What came of this call is not known: no result of it was recorded."
	goOn      = "Go on."
	beginning = "(The beginning of this conversation was left out.)"
)

var (
	badInID = lazy.Regexp(`[^a-zA-Z0-9_-]`)
)

// ToolName reports whether every service takes this as the name of a tool.
func ToolName(name string) bool { return taken(name) }

// taken reports whether every service takes this as an id or a name: at most 64 letters, digits, _ and -.
func taken(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return s != "" && len(s) <= 64
}

// Conversation returns messages of the same meaning that every service's rules accept. User and assistant
// alternate, the user begins and ends. Each call is answered, once, at the beginning of the next message, in
// the calls' order; a call without a return is said to have none, and a return without its call becomes
// text. No text is blank. Reasoning does not end a message. Ids and names have the letters that services take. The
// messages that are given are not changed, and what only services of other providers understand is left out.
func Conversation(messages []contract.Message, provider string) []contract.Message {
	c := conversation{messages: make([]contract.Message, 0, len(messages)+1), ids: make(map[string]string, len(messages)), used: make(map[string]bool, len(messages))}
	for _, m := range messages {
		c.role(m.Role)
		for _, p := range m.Parts {
			c.add(p, provider)
		}
	}
	return c.finish()
}

// conversation builds messages part by part.
type conversation struct {
	messages []contract.Message
	ids      map[string]string // ids as they were given → as they are sent
	used     map[string]bool
}

// role makes sure that the last message is of this role.
func (c *conversation) role(r contract.MessageRole) {
	n := len(c.messages)
	switch {
	case n > 0 && c.messages[n-1].Role == r:
		return
	case n == 0 && r == contract.MessageAssistant:
		c.messages = append(c.messages, contract.Message{Role: contract.MessageUser})
	}
	c.messages = append(c.messages, contract.Message{Role: r})
}

func (c *conversation) add(p contract.Part, provider string) {
	m := &c.messages[len(c.messages)-1]
	switch {
	case p.Call != nil:
		call := *p.Call
		call.ID, call.Name, call.Args = c.newID(call.ID), name(call.Name), Arguments(call.Args)
		p.Call = &call
	case p.Return != nil:
		ret := *p.Return
		if id, ok := c.ids[ret.ID]; ok {
			ret.ID = id
		}
		p.Return = &ret
	case p.Reasoning != nil:
		if p.Reasoning.Provider != provider {
			return
		}
	case p.Image == nil && strings.TrimSpace(p.Text) == "":
		return
	}
	m.Parts = append(m.Parts, p)
}

// newID returns an id that services take and that no earlier call has.
func (c *conversation) newID(id string) string {
	sent := id
	if !taken(sent) || c.used[sent] {
		base := badInID().ReplaceAllString(id, "_")
		for salt := ""; ; salt += "+" {
			sum := sha256.Sum256([]byte(salt + id))
			sent = base[:min(len(base), 40)] + "_" + hex.EncodeToString(sum[:6])
			if !c.used[sent] {
				break
			}
		}
	}
	c.ids[id], c.used[sent] = sent, true
	return sent
}

func name(s string) string {
	if taken(s) {
		return s
	}
	s = badInID().ReplaceAllString(s, "_")
	if s == "" {
		return "unnamed"
	}
	return s[:min(len(s), 64)]
}

// finish orders each message and fills what is missing.
func (c *conversation) finish() []contract.Message {
	out := make([]contract.Message, 0, len(c.messages)+1)
	for _, m := range c.messages {
		parts := m.Parts
		if m.Role == contract.MessageAssistant {
			for len(parts) > 0 && parts[len(parts)-1].Reasoning != nil {
				parts = parts[:len(parts)-1]
			}
		} else {
			parts = answers(calls(out), parts)
		}
		n := len(out)
		switch {
		case len(parts) == 0 && n == 0 && m.Role == contract.MessageUser:
			// It is not known yet whether anything follows that needs a beginning.
			continue
		case len(parts) == 0:
			continue
		case n == 0 && m.Role == contract.MessageAssistant:
			out = append(out, contract.Message{Role: contract.MessageUser, Parts: []contract.Part{{Text: beginning}}})
		case n > 0 && out[n-1].Role == m.Role:
			// The message between the two had nothing in it that could be sent.
			out[n-1].Parts = append(out[n-1].Parts[:len(out[n-1].Parts):len(out[n-1].Parts)], parts...)
			continue
		}
		out = append(out, contract.Message{Role: m.Role, Parts: parts})
	}
	if n := len(out); n == 0 || out[n-1].Role == contract.MessageAssistant {
		parts := answers(calls(out), nil)
		if len(parts) == 0 {
			parts = []contract.Part{{Text: goOn}}
		}
		out = append(out, contract.Message{Role: contract.MessageUser, Parts: parts})
	}
	return out
}

// calls returns the calls of the last message, if it is the assistant's.
func calls(messages []contract.Message) []*contract.ToolCall {
	if len(messages) == 0 || messages[len(messages)-1].Role != contract.MessageAssistant {
		return nil
	}
	var out []*contract.ToolCall
	for _, p := range messages[len(messages)-1].Parts {
		if p.Call != nil {
			out = append(out, p.Call)
		}
	}
	return out
}

// answered reports whether parts begin with the calls' returns in their order, and have no others.
func answered(calls []*contract.ToolCall, parts []contract.Part) bool {
	for i, p := range parts {
		switch {
		case i < len(calls) && (p.Return == nil || p.Return.ID != calls[i].ID), i >= len(calls) && p.Return != nil:
			return false
		}
	}
	return len(parts) >= len(calls)
}

// answers returns the parts of a user's message with the calls' returns first.
func answers(calls []*contract.ToolCall, parts []contract.Part) []contract.Part {
	if answered(calls, parts) {
		return parts
	}
	wanted := map[string]bool{}
	for _, call := range calls {
		wanted[call.ID] = true
	}
	returns, rest := map[string]contract.Part{}, []contract.Part(nil)
	for _, p := range parts {
		if p.Return == nil {
			rest = append(rest, p)
			continue
		}
		if _, again := returns[p.Return.ID]; wanted[p.Return.ID] && !again {
			returns[p.Return.ID] = p
			continue
		}
		if text := strings.TrimSpace(p.Return.Content); text != "" {
			rest = append(rest, contract.Part{Text: "The result of an earlier call:\n" + text})
		}
		for _, image := range p.Return.Images {
			rest = append(rest, contract.Part{Image: &image})
		}
	}
	out := make([]contract.Part, 0, len(calls)+len(rest))
	for _, call := range calls {
		p, ok := returns[call.ID]
		if !ok {
			p = contract.Part{Return: &contract.ToolReturn{ID: call.ID, Content: noReturn, IsError: true}}
		}
		out = append(out, p)
	}
	return append(out, rest...)
}
