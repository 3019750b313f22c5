package modelserver

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// Script is what a server plays.
type Script struct {
	// Values replace {{name}} in texts and arguments, such as a colour drawn at
	// test time.
	Values map[string]string `json:"values,omitempty"`
	Turns  []Turn            `json:"turns"`
}

// Turn is one answer. A request is answered by the first turn that has not been played and that
// fits it.
type Turn struct {
	// Role is the loop that the turn is for: director (which is offered the tool report), associate
	// (finish), or empty for any.
	Role string `json:"role,omitempty"`
	// Match is an expression that the request's text must match, without what it quotes of earlier runs; empty always does.
	Match string `json:"match,omitempty"`
	// Capture finds values in the request's text: name → expression with one group.
	Capture map[string]string `json:"capture,omitempty"`
	// Repeat plays the turn as often as it fits.
	Repeat bool `json:"repeat,omitempty"`
	// Hold keeps the answer back until Server.Release is called with this name.
	Hold string `json:"hold,omitempty"`

	// Reasoning is what the model thought, before the text.
	Reasoning []Thought `json:"reasoning,omitempty"`
	Text      string    `json:"text,omitempty"`
	// Refusal is a refusal in words, in a field of its own where the format has one.
	Refusal string `json:"refusal,omitempty"`
	Calls   []Call `json:"calls,omitempty"`
	Stop    string `json:"stop,omitempty"` // end, tool_use, length, refusal, failed, none, or as the format has it; empty: it follows from the calls
	Code    string `json:"code,omitempty"` // of what failed
	Usage   *Usage `json:"usage,omitempty"`
	Fault   *Fault `json:"fault,omitempty"`
}

// Thought is a piece of reasoning. Opaque is its signature or, if Hidden, what stands in place of its text. In the
// chat-completions format only the text is sent, in Field: reasoning_content if it is empty.
type Thought struct {
	ID     string `json:"id,omitempty"`
	Text   string `json:"text,omitempty"`
	Opaque string `json:"opaque,omitempty"`
	Hidden bool   `json:"hidden,omitempty"`
	Field  string `json:"field,omitempty"`
}

// Call is a tool call. If Raw is set, it is sent unchanged as the arguments.
type Call struct {
	ID   string          `json:"id,omitempty"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args,omitempty"`
	Raw  string          `json:"raw,omitempty"`
}

// Usage is what the server reports. Out is at most what the request allowed, unless Exact is set.
type Usage struct {
	In         int64 `json:"in"`
	Out        int64 `json:"out"`
	CacheRead  int64 `json:"cache_read,omitempty"`
	CacheWrite int64 `json:"cache_write,omitempty"`
	Exact      bool  `json:"exact,omitempty"`
	Omit       bool  `json:"omit,omitempty"` // report no usage
}

// Fault is how a turn goes wrong. Kinds:
//
//	status      HTTP Status, with RetryAfter seconds if set, and Text as message
//	hang        no answer until the client gives up
//	stall       the beginning of a stream, then nothing
//	cut         the beginning of a stream, then the connection closes
//	garbage     HTTP 200 with bytes of no format
//	big_text    10 MB of text
//	endless     text without end
//	many_calls  a thousand tool calls
//	long_name   a tool call whose name has a million letters
//	echo_key    the request's key in the answer's text
//	leak        HTTP 401 whose message holds the request's key
//	redirect    HTTP 302 to Location
//	late        the answer after PauseMS
//	drip        the answer with PauseMS before each of its pieces
//	pings       the beginning of a stream without a word, then signs of life each PauseMS
//	thoughts    thinking without end
//	arguments   a call whose arguments do not end
//	interleaved the calls' pieces in turns
//	index_zero  every call under the first one's index
type Fault struct {
	Kind       string `json:"kind"`
	Status     int    `json:"status,omitempty"`
	RetryAfter string `json:"retry_after,omitempty"`
	Location   string `json:"location,omitempty"`
	PauseMS    int    `json:"pause_ms,omitempty"`
}

// ParseScript parses a script from JSON and checks it.
func ParseScript(b []byte) (Script, error) {
	var s Script
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return s, fmt.Errorf("script: %w", err)
	}
	return s, s.check()
}

func (s Script) check() error {
	for i, t := range s.Turns {
		exprs := []string{t.Match}
		for _, e := range t.Capture {
			exprs = append(exprs, e)
		}
		for _, e := range exprs {
			if _, err := regexp.Compile(e); err != nil {
				return fmt.Errorf("turns[%d]: %w", i, err)
			}
		}
	}
	return nil
}

// Args encodes a value as a call's arguments.
func Args(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic("modelserver.Args: " + err.Error())
	}
	return b
}

var name = regexp.MustCompile(`\{\{([a-zA-Z0-9_]+)\}\}`)

// fill replaces values in a text; escape is for text inside JSON strings.
func fill(text string, values map[string]string, escape bool) string {
	return name.ReplaceAllStringFunc(text, func(m string) string {
		v, ok := values[m[2:len(m)-2]]
		if !ok {
			return m
		}
		if escape {
			b, _ := json.Marshal(v) // a string can always be encoded
			v = string(b[1 : len(b)-1])
		}
		return v
	})
}
