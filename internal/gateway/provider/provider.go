package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"choir.dev/choiros/contract"
)

// Provider speaks one wire format. Implementations are stateless and safe for concurrent use, never
// retry, and pass on what they receive as it arrives.
type Provider interface {
	// Stream asks for one turn. It returns an *Error for a failure of the service or the network,
	// and the sink's error when the sink refused. The Finish is meaningful with an error too: it
	// holds the usage known so far.
	Stream(ctx context.Context, c Call, sink Sink) (Finish, error)
}

// Call is one request to one endpoint. The gateway has prepared the request: its messages are a Conversation, an
// image in it is among Images, and it has an Output only for a model that can be told one.
type Call struct {
	Role      string // the loop that asks: director or associate
	Provider  string // under which its reasoning is kept
	Model     string // without the provider's name
	Request   contract.TurnRequest
	MaxTokens int
	Abilities Abilities
	Dialect   Dialect
	Images    map[contract.BlobRef]Picture
	Memo      *Memo // of the loop that asks; nil: nothing is kept of its messages
	Endpoint  Endpoint
}

// Reasoning says how a model is told how much to think.
type Reasoning string

// How a model is told how much to think. The empty one can't be told, and may think nevertheless.
const (
	ReasoningAdaptive Reasoning = "adaptive" // Messages: thinking that the model itself measures out, and an effort
	ReasoningBudget   Reasoning = "budget"   // Messages: thinking within a number of tokens
	ReasoningEffort   Reasoning = "effort"   // OpenAI's formats: reasoning_effort
	ReasoningSwitch   Reasoning = "switch"   // chat completions of others: thinking, enabled or disabled
)

// Abilities is what the catalogue says that a model can be told or shown.
type Abilities struct {
	Reasoning Reasoning
	Efforts   []contract.Effort // those that it has; none means all but "none"
	Output    bool              // a JSON Schema of its answer
	Images    bool
}

// Has returns the model's efforts; none if it can't be told.
func (a Abilities) Has() []contract.Effort {
	if a.Reasoning == "" {
		return nil
	}
	if len(a.Efforts) > 0 {
		return a.Efforts
	}
	return []contract.Effort{contract.EffortLow, contract.EffortMedium, contract.EffortHigh}
}

// Effort returns the one of the model's efforts that is nearest to what was asked for, or "" if nothing was, or the model
// can't be told. Who asks for some gets some; who asks for none of a model that always thinks gets its least.
func (a Abilities) Effort(asked contract.Effort) contract.Effort {
	if asked == "" || a.Reasoning == "" {
		return ""
	}
	has := a.Has()
	order := map[contract.Effort]int{contract.EffortNone: 0, contract.EffortLow: 1, contract.EffortMedium: 2, contract.EffortHigh: 3}
	best, distance := contract.Effort(""), 100
	for _, e := range has {
		if e == contract.EffortNone && asked != e {
			continue
		}
		d := 2 * (order[e] - order[asked])
		if d < 0 {
			d = 1 - d
		}
		if d < distance {
			best, distance = e, d
		}
	}
	return best
}

// Dialect is how a service that speaks chat completions departs from the vendor's.
type Dialect struct {
	// MaxTokens is the field for the longest answer: max_tokens if empty.
	MaxTokens string
	// Reasoning is the field in which the service wants back what its model thought; "" if it does not.
	Reasoning string
	// ReasoningAlways says that it refuses a message with calls that has no such field.
	ReasoningAlways bool
}

// Picture is an image, as it goes into a request.
type Picture struct {
	Media  string
	Base64 string
}

// URL returns it as a data URL.
func (p Picture) URL() string { return "data:" + p.Media + ";base64," + p.Base64 }

// Endpoint is the address of a provider's service, and its key. The HTTP client bounds time and
// size and follows no redirect.
type Endpoint struct {
	BaseURL string
	Key     string
	Bearer  bool   // the key goes into Authorization, also in Anthropic's format
	Region  string // of AWS
	HTTP    *http.Client
}

// Sink receives a turn as it arrives. Every method may return ErrFull, after which the provider
// stops reading and returns that error.
type Sink interface {
	Text(fragment string) error
	// Reasoning adds to reasoning number index: to its Text and Opaque, and sets its ID and Hidden. Whose it is,
	// the sink knows.
	Reasoning(index int, fragment contract.Reasoning) error
	// Call announces tool call number index, or adds to its id and name.
	Call(index int, id, name string) error
	// Args adds to the arguments of tool call number index.
	Args(index int, fragment string) error
}

// ErrFull says that the answer exceeds the gateway's bounds.
var ErrFull = errors.New("the answer is over the size limit")

// Finish says how a turn ended. Stop is empty if the service gave no reason.
type Finish struct {
	Stop  contract.StopReason
	Usage Usage
}

// Usage is the service's own count of tokens. In excludes tokens read from or written to a prompt
// cache. Known says that the service reported it.
type Usage struct {
	In, Out, CacheRead, CacheWrite int64
	Known                          bool
}

// Error is a failure of the service or of the connection to it. Code is one of
// contract.TurnError's. Message comes from outside and is not yet redacted.
type Error struct {
	Code       string
	Message    string
	Status     int           // HTTP status, 0 if there was none
	RetryAfter time.Duration // what the service asked for, 0 if nothing
	Retriable  bool
	Err        error
}

func (e *Error) Error() string {
	if e.Message != "" {
		return e.Code + ": " + e.Message
	}
	if e.Err != nil {
		return e.Code + ": " + e.Err.Error()
	}
	return e.Code
}

func (e *Error) Unwrap() error { return e.Err }

// Arguments returns a call's arguments as they go into a conversation's history. Services refuse a
// history with arguments that are not an object, so anything else that the model wrote becomes the
// only field of one.
func Arguments(args json.RawMessage) json.RawMessage {
	if trimmed := bytes.TrimLeft(args, " \t\r\n"); len(trimmed) > 0 && trimmed[0] == '{' && json.Valid(args) {
		return args
	}
	if len(args) == 0 {
		return json.RawMessage("{}")
	}
	text := string(args)
	var s string
	if json.Unmarshal(args, &s) == nil {
		text = s
	}
	out, err := json.Marshal(map[string]string{"invalid_arguments": text})
	if err != nil { // a map of strings can always be encoded
		return json.RawMessage("{}")
	}
	return out
}
