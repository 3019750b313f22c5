package contract

import (
	"encoding/json"
)

// MaxTurn bounds an encoded model request or turn, in bytes.
const MaxTurn = 8 << 20

// TurnRequest asks the gateway for one model turn. A loop in a box posts it to
// /model/turns over its tether; the gateway adds the key, picks the provider
// and enforces the budget.
type TurnRequest struct {
	Model     string     `json:"model,omitempty" v:"max=200"` // provider/model or an alias; empty means the role's default
	System    string     `json:"system,omitempty" v:"raw,max=1048576"`
	Messages  []Message  `json:"messages" v:"nonempty,items=2000"`
	Tools     []ToolSpec `json:"tools,omitempty" v:"items=100"`
	MaxTokens int        `json:"max_tokens,omitempty" v:"min=0,max=10000000"` // 0: what the catalogue says of the model
	Effort    Effort     `json:"effort,omitempty"`                            // how much to think first; ignored by models that can't be told
	Output    *Output    `json:"output,omitempty"`                            // the form that the answer's text has to have
}

// Effort says how much a model thinks before it answers.
type Effort string

// How much a model thinks before it answers. The empty effort is the model's own.
const (
	EffortNone   Effort = "none"
	EffortLow    Effort = "low"
	EffortMedium Effort = "medium"
	EffortHigh   Effort = "high"
)

// Output is a structured output: the answer's text is JSON that Schema, a JSON Schema object,
// describes.
type Output struct {
	Name   string          `json:"name" v:"required,max=64"`
	Schema json.RawMessage `json:"schema" v:"max=262144"`
}

// Message is one message of a conversation with a model.
type Message struct {
	Role  MessageRole `json:"role" v:"required"`
	Parts []Part      `json:"parts,omitempty" v:"items=1000"`
}

// MessageRole says who speaks.
type MessageRole string

// Who speaks.
const (
	MessageUser      MessageRole = "user"
	MessageAssistant MessageRole = "assistant"
)

// Part is a piece of a message; exactly one field is set.
type Part struct {
	Text      string      `json:"text,omitempty" v:"raw,max=8388608"`
	Call      *ToolCall   `json:"call,omitempty"`      // assistant only
	Return    *ToolReturn `json:"return,omitempty"`    // user only
	Reasoning *Reasoning  `json:"reasoning,omitempty"` // assistant only
	Image     *Image      `json:"image,omitempty"`     // user only
}

// Reasoning is what a model thought before it answered. Services want it back as they gave it
// while its turn's calls are answered: Opaque is a signature or an encrypted text, which only
// the service of Provider understands. Others are not shown it.
type Reasoning struct {
	Provider string `json:"provider" v:"required,max=100"`
	Text     string `json:"text,omitempty" v:"raw,max=1048576"`
	ID       string `json:"id,omitempty" v:"max=256"`
	Opaque   string `json:"opaque,omitempty" v:"raw,max=1048576"`
	// Hidden says that Opaque stands in place of the text, and is no signature of it.
	Hidden bool `json:"hidden,omitempty"`
}

// Image is a picture that a model looks at. It is kept as a blob; the gateway reads it.
type Image struct {
	Media string  `json:"media" v:"required,max=64"` // image/png, image/jpeg, image/gif or image/webp
	Ref   BlobRef `json:"ref" v:"required"`
	Bytes int64   `json:"bytes,omitempty" v:"min=0"`
}

// ToolCall is a model's request to use a tool. Args is what the model wrote;
// it is a JSON object only once ValidateArgs has said so.
type ToolCall struct {
	ID   string          `json:"id" v:"required,max=256"`
	Name string          `json:"name" v:"required,max=128"`
	Args json.RawMessage `json:"args" v:"max=1048576"`
	// Cut says that the answer was cut off inside the arguments, of which Arrived bytes came; such a
	// call must not be run.
	Cut     bool  `json:"cut,omitempty"`
	Arrived int64 `json:"arrived,omitempty" v:"min=0"`
}

// ToolReturn answers the ToolCall with the same ID.
type ToolReturn struct {
	ID      string  `json:"id" v:"required,max=256"`
	Content string  `json:"content" v:"raw,max=8388608"`
	IsError bool    `json:"is_error,omitempty"`
	Images  []Image `json:"images,omitempty" v:"items=20"`
}

// ToolSpec describes a tool to a model. Schema is a JSON Schema object.
type ToolSpec struct {
	Name        string          `json:"name" v:"required,max=128"`
	Description string          `json:"description" v:"raw,max=65536"`
	Schema      json.RawMessage `json:"schema" v:"max=262144"`
}

// StopReason says why a turn ended.
type StopReason string

// Why a turn ended.
const (
	StopEnd      StopReason = "end"       // the model is done
	StopToolUse  StopReason = "tool_use"  // it waits for tool returns
	StopLength   StopReason = "length"    // the token limit was reached
	StopRefusal  StopReason = "refusal"   // the model declined
	StopTruncate StopReason = "truncated" // the gateway cut an oversized or endless answer
)

// Turn is a model's finished answer.
type Turn struct {
	Provider string     `json:"provider" v:"required,max=100"`
	Model    string     `json:"model" v:"required,max=200"`
	Message  Message    `json:"message"`
	Stop     StopReason `json:"stop" v:"required"`
	Usage    Usage      `json:"usage"`
}

// TurnChunk is one line of the NDJSON answer to POST /model/turns: text as it
// arrives, then exactly one of Turn or Error.
type TurnChunk struct {
	Delta string     `json:"delta,omitempty" v:"raw,max=1048576"`
	Turn  *Turn      `json:"turn,omitempty"`
	Error *TurnError `json:"error,omitempty"`
}

// TurnError is why there is no turn. Retriable says whether the same request may succeed
// later.
type TurnError struct {
	Code      string `json:"code" v:"required,max=100"` // budget, rate_limited, unavailable, timeout, invalid, malformed, too_large, overflow, no_model
	Message   string `json:"message" v:"max=8192"`
	Retriable bool   `json:"retriable,omitempty"`
}

func (e *TurnError) Error() string { return e.Code + ": " + e.Message }

// Validate checks that exactly one of delta, turn and error is set, and checks that one.
func (c TurnChunk) Validate() error { return check(c) }

// Validate checks a turn's form.
func (t Turn) Validate() error { return check(t) }

// Validate checks shape and bounds, not meaning.
func (r TurnRequest) Validate() error { return check(r) }
