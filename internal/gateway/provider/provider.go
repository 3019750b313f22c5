package provider

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"choir.dev/choiros/contract"
)

// Provider speaks one wire format. Implementations are stateless and safe for
// concurrent use, never retry, and pass on what they receive while it arrives.
type Provider interface {
	// Stream asks for one turn. It returns an *Error for what the service or
	// the network did, and the sink's error when the sink refused. The Finish
	// is meaningful with an error too: it holds the usage known so far.
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

// Endpoint is where a provider's service is, and the key for it. The HTTP
// client bounds time and size and follows no redirect.
type Endpoint struct {
	BaseURL string
	Key     string
	HTTP    *http.Client
}

// Sink takes a turn as it arrives. Every method may refuse with ErrFull, after
// which the provider stops reading and returns that error.
type Sink interface {
	Text(fragment string) error
	// Call announces tool call number index, or adds to its id and name.
	Call(index int, id, name string) error
	// Args adds to the arguments of tool call number index.
	Args(index int, fragment string) error
}

// ErrFull says that the answer is over the gateway's bounds.
var ErrFull = errors.New("the answer is over the size limit")

// Finish is how a turn ended. An empty Stop means the service never said.
type Finish struct {
	Stop  contract.StopReason
	Usage Usage
}

// Usage is what the service says it counted, in tokens. In excludes tokens read
// from or written to a prompt cache. Known says that the service reported it.
type Usage struct {
	In, Out, CacheRead, CacheWrite int64
	Known                          bool
}

// Error is what a service or the way to it answered instead of a turn. Code is
// one of contract.TurnError's. Message comes from outside and is not yet
// redacted.
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

// Arguments is a call's arguments for a conversation's history. Services refuse
// a history with arguments that are not an object, so what the model wrote
// instead of one goes back to it under a name of its own.
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
	if err != nil { // a map of strings always encodes
		return json.RawMessage("{}")
	}
	return out
}
