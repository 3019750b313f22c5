package inward

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/gateway/provider"
)

// input is a request under translation.
type input struct {
	ctx      context.Context
	server   *server
	pictures int
	counting bool // the request is not carried out, so its pictures are not kept
}

// wrong says which field of a request can't be answered, and why.
func wrong(field, format string, args ...any) error {
	return &contract.TurnError{Code: provider.CodeInvalid, Message: field + ": " + fmt.Sprintf(format, args...)}
}

// rule is a field that is refused unless its value changes nothing.
type rule struct {
	field string
	fine  func(raw string) bool
	why   string
}

// unset reports whether a value is as if the field were not there.
func unset(raw string) bool {
	return slices.Contains([]string{"", "null", "false", "[]", "{}", `""`, "0"}, raw)
}

// checked decodes a request's body into a struct, with what it does not know left out, and refuses
// fields that would change the answer's meaning. What only tunes how a vendor's service does its work is
// ignored.
func checked(body []byte, into any, rules []rule) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil || fields == nil {
		return &contract.TurnError{Code: provider.CodeInvalid, Message: "the body is not a JSON object"}
	}
	for _, r := range rules {
		var flat bytes.Buffer
		if err := json.Compact(&flat, fields[r.field]); err != nil && len(fields[r.field]) > 0 {
			return wrong(r.field, "is not JSON")
		}
		if raw := flat.String(); !unset(raw) && (r.fine == nil || !r.fine(raw)) {
			return wrong(r.field, "%s", r.why)
		}
	}
	if err := json.Unmarshal(body, into); err != nil {
		var typed *json.UnmarshalTypeError
		if ok := asType(err, &typed); ok {
			return wrong(typed.Field, "has the wrong type (%s)", typed.Value)
		}
		return &contract.TurnError{Code: provider.CodeInvalid, Message: "the body can't be read: " + contract.Shorten(err.Error(), 200)}
	}
	return nil
}

func asType(err error, to **json.UnmarshalTypeError) bool {
	typed, ok := err.(*json.UnmarshalTypeError)
	*to = typed
	return ok
}

// bounded refuses conversations and lists of tools that are too long.
func bounded(messages, tools int) error {
	if messages > maxMessages {
		return wrong("messages", "are %d; at most %d are taken", messages, maxMessages)
	}
	if tools > maxTools {
		return wrong("tools", "are %d; at most %d are taken", tools, maxTools)
	}
	return nil
}

// list decodes what may be a string or a list of blocks; a string becomes one block made by text.
func list[T any](field string, raw json.RawMessage, text func(string) T) ([]T, error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	var s string
	if raw[0] == '"' && json.Unmarshal(raw, &s) == nil {
		return []T{text(s)}, nil
	}
	var out []T
	if err := json.Unmarshal(raw, &out); err != nil {
		return nil, wrong(field, "is neither a text nor a list of blocks that can be read")
	}
	if len(out) > 1000 {
		return nil, wrong(field, "has %d blocks; at most 1000 are taken", len(out))
	}
	return out, nil
}

// picture keeps a picture that came in base64.
func (in *input) picture(field, media, content string) (contract.Image, error) {
	s := in.server
	if s.Keep == nil {
		return contract.Image{}, wrong(field, "pictures can't be shown to the model here")
	}
	if in.pictures++; in.pictures > maxPictures {
		return contract.Image{}, wrong(field, "is picture number %d; at most %d are taken", in.pictures, maxPictures)
	}
	b, err := base64.StdEncoding.DecodeString(content)
	if err != nil {
		return contract.Image{}, wrong(field, "is not base64")
	}
	if is := http.DetectContentType(b); is != media {
		return contract.Image{}, wrong(field, "says %s and is %s", contract.Shorten(media, 40), is)
	}
	ref := contract.NewBlobRef(sum(b))
	if in.counting {
		return contract.Image{Media: media, Ref: ref, Bytes: int64(len(b))}, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stored[ref] && s.size+int64(len(b)) > maxStored {
		return contract.Image{}, wrong(field, "this box has had %d MiB of pictures kept, and may not have more", maxStored>>20)
	}
	// One that was kept before is kept anew: no event names it, so it goes when it is old.
	kept, n, err := s.Keep(in.ctx, bytes.NewReader(b))
	if err != nil {
		return contract.Image{}, fmt.Errorf("%s: the picture could not be kept: %w", field, err)
	}
	if !s.stored[ref] {
		s.stored[ref] = true
		s.size += n
	}
	return contract.Image{Media: media, Ref: kept, Bytes: n}, nil
}

// dataURL keeps a picture that came as a data URL.
func (in *input) dataURL(field, url string) (contract.Image, error) {
	rest, ok := strings.CutPrefix(url, "data:")
	media, content, found := strings.Cut(rest, ";base64,")
	if !ok || !found {
		return contract.Image{}, wrong(field, "only pictures in the request itself, as data:image/…;base64,…, can be shown; the host fetches nothing")
	}
	return in.picture(field, media, content)
}

// conversation builds a contract's messages part by part.
type conversation struct {
	messages []contract.Message
	system   []string
	thoughts []placed // of the last message
}

// placed is a thought, and its place in the turn that it is of.
type placed struct {
	at      int
	thought contract.Reasoning
}

// add adds parts to the last message if it is of this role, else to a new one.
func (c *conversation) add(role contract.MessageRole, parts ...contract.Part) {
	if n := len(c.messages); n == 0 || c.messages[n-1].Role != role {
		c.settle()
		c.messages = append(c.messages, contract.Message{Role: role})
	}
	m := &c.messages[len(c.messages)-1]
	for _, p := range parts {
		if p.Call != nil || p.Return != nil || p.Reasoning != nil || p.Image != nil || p.Text != "" {
			m.Parts = append(m.Parts, p)
		}
	}
}

// think adds a thought, which is put in its place once the message is complete.
func (c *conversation) think(at int, r contract.Reasoning) {
	c.add(contract.MessageAssistant)
	c.thoughts = append(c.thoughts, placed{at, r})
}

// settle puts the thoughts of the last message where they were in their turn: a stream has them behind
// the text, and services want them before it.
func (c *conversation) settle() {
	if len(c.thoughts) == 0 {
		return
	}
	m := &c.messages[len(c.messages)-1]
	slices.SortStableFunc(c.thoughts, func(a, b placed) int { return a.at - b.at })
	for _, t := range c.thoughts {
		at := min(max(t.at, 0), len(m.Parts))
		m.Parts = slices.Insert(m.Parts, at, contract.Part{Reasoning: &t.thought})
	}
	c.thoughts = nil
}

// instruct adds what the system says: to the system prompt at the beginning, behind that where it stands.
func (c *conversation) instruct(text string) {
	switch {
	case strings.TrimSpace(text) == "":
	case len(c.messages) == 0:
		c.system = append(c.system, text)
	default:
		c.add(contract.MessageUser, contract.Part{Text: "<system>\n" + text + "\n</system>"})
	}
}

// into writes the conversation into a request.
func (c *conversation) into(r *contract.TurnRequest) {
	c.settle()
	r.System = strings.Join(c.system, "\n\n")
	r.Messages = c.messages
}

// object returns a tool's schema, or one of no arguments.
func object(raw json.RawMessage) json.RawMessage {
	if b := bytes.TrimSpace(raw); len(b) > 0 && b[0] == '{' {
		return raw
	}
	return json.RawMessage(`{"type":"object","properties":{}}`)
}

// argumentsIn returns a call's arguments, which OpenAI's formats have as a text that should be JSON.
func argumentsIn(s string) json.RawMessage {
	if strings.TrimSpace(s) == "" {
		return json.RawMessage("{}")
	}
	if json.Valid([]byte(s)) {
		return json.RawMessage(s)
	}
	b, err := json.Marshal(s)
	if err != nil { // a string can always be encoded
		return json.RawMessage(`""`)
	}
	return b
}

// argumentsOut is its inverse: what was no JSON arrives as the model wrote it.
func argumentsOut(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

// effort returns the effort that is nearest to one of a vendor's.
func effort(field, s string) (contract.Effort, error) {
	switch s {
	case "":
		return "", nil
	case "none":
		return contract.EffortNone, nil
	case "minimal", "low":
		return contract.EffortLow, nil
	case "medium":
		return contract.EffortMedium, nil
	case "high", "xhigh", "max":
		return contract.EffortHigh, nil
	}
	return "", wrong(field, "is %q, which is no effort", contract.Shorten(s, 40))
}
