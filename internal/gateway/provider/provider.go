package provider

import (
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

// Call is one request to one endpoint.
type Call struct {
	Role      string // the loop that asks: director or associate
	Model     string // without the provider's name
	Request   contract.TurnRequest
	MaxTokens int
	Endpoint  Endpoint
}

// Endpoint is the address of a provider's service, and its key. The HTTP client bounds time and
// size and follows no redirect.
type Endpoint struct {
	BaseURL string
	Key     string
	HTTP    *http.Client
}

// Sink receives a turn as it arrives. Every method may return ErrFull, after which the provider
// stops reading and returns that error.
type Sink interface {
	Text(fragment string) error
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
	var object map[string]json.RawMessage
	if json.Unmarshal(args, &object) == nil && object != nil {
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
