package view

import "time"

// Trace is what took time in a run, as spans: the first is the run itself, and each other one's
// parent stands before it. Names and attributes follow OpenTelemetry's conventions for
// generative AI.
type Trace struct {
	ID      string `json:"id"` // 32 hexadecimal digits
	Run     string `json:"run"`
	Ended   bool   `json:"ended"`             // nothing is added to it any more
	Dropped int    `json:"dropped,omitempty"` // how many more spans there were than are kept
	Spans   []Span `json:"spans"`
	// More says that the answer to a desktop ends before the last span. Spans keep their places
	// while the run goes on, so the rest is what comes after as many as these.
	More bool `json:"more,omitempty"`
}

// Fit returns as many of the spans as fit; the reader requests the rest.
func (t Trace) Fit(max int) (Trace, error) {
	spans, cut, err := Fit(t.Spans, max)
	t.Spans, t.More = spans, cut
	return t, err
}

// Span is something that took time.
type Span struct {
	ID     string    `json:"id"`               // 16 hexadecimal digits
	Parent string    `json:"parent,omitempty"` // of the run: the span of another program that asked for it
	Name   string    `json:"name"`
	Kind   SpanKind  `json:"kind"`
	Start  time.Time `json:"start"`
	End    time.Time `json:"end,omitzero"`    // while the run goes on: zero, or not yet the last word
	Error  string    `json:"error,omitempty"` // a word for how it failed
	// From and To are the sequences of the events that it begins and ended with, in which its
	// contents are. They are not exported.
	From uint64 `json:"from,omitempty"`
	To   uint64 `json:"to,omitempty"` // 0 while no event has ended it
	// Attributes are texts, whole numbers, numbers and truths. None is from a prompt, a model's
	// answer, an output or a file.
	Attributes map[string]any `json:"attributes,omitempty"`
}

// SpanKind says where the work of a span was done.
type SpanKind string

// The kinds of span.
const (
	SpanInternal SpanKind = "internal"
	SpanClient   SpanKind = "client" // by a service that was asked
)
