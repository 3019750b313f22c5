package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/harness"
)

// Result is the answer to a call. OK false means that the tool could not do what
// was asked; Output then says why. A command that ran is OK whatever its exit
// code.
type Result struct {
	OK        bool              `json:"ok"`
	Output    string            `json:"output"`
	Truncated bool              `json:"truncated,omitempty"`
	Command   *contract.Command `json:"command,omitempty"` // of a tool that runs one
	Data      json.RawMessage   `json:"data,omitempty"`    // for the host, never for a model
	// Pictures are what whoever carried out the call saw, for the host to keep; Images name what
	// it kept, and come from the host alone.
	Pictures [][]byte         `json:"pictures,omitempty"`
	Images   []contract.Image `json:"images,omitempty"`
	// Ended is what a call came to that changes something outside. Only the host's own code says it; no box does.
	Ended *Ended `json:"-"`
}

// Ended is what is known of a call that changes something outside.
type Ended struct {
	Outcome contract.EffectOutcome
	Status  int // of an answer of HTTP
	// Answer is what was answered, if the call's output has more around it.
	Answer string
}

// End is the result with what the call came to.
func (r Result) End(outcome contract.EffectOutcome) Result {
	r.Ended = &Ended{Outcome: outcome}
	return r
}

// Said is the answer as a model reads it: what was cut says so.
func (r Result) Said() string {
	if r.Truncated && !strings.Contains(r.Output, "left out") && !strings.Contains(r.Output, "not shown") {
		return r.Output + "\n(cut: there is more)"
	}
	return r.Output
}

// Failed is the result of a call that could not do what was asked.
func Failed(format string, args ...any) Result { return Result{Output: fmt.Sprintf(format, args...)} }

// errTime is the cause of a call's end when its time is used up.
var errTime = errors.New("the time of a call is up")

// Do carries out one call within the tool's limits, whoever executes it. Arguments that are
// too large give a Result for the caller to read. A call that exceeds its time is an error,
// since nobody knows what it did. Text that is too long is cut and says so; data that are
// too long can't be cut and are an error.
func (t Tool) Do(ctx context.Context, args json.RawMessage, f func(context.Context) (Result, error)) (Result, error) {
	if len(args) > t.Limits.In {
		return Failed("the arguments have %d bytes; %s takes at most %d", len(args), t.Name, t.Limits.In), nil
	}
	if t.Limits.Time > 0 {
		var cancel context.CancelFunc
		ctx, cancel = awake.WithTimeoutCause(ctx, t.Limits.Time, errTime)
		defer cancel()
	}
	res, err := f(ctx)
	if err != nil && errors.Is(context.Cause(ctx), errTime) {
		return Result{}, fault.New("tool."+t.Name, fault.Timeout, "", fmt.Errorf("%s was not over in %s: %w", t.Name, t.Limits.Time, err))
	}
	if err != nil {
		return Result{}, fault.Wrap("tool."+t.Name, err)
	}
	if len(res.Data) > t.Limits.Out {
		return Result{}, fault.New("tool."+t.Name, fault.Exhausted, "", fmt.Errorf("the answer has %d bytes of data; %s may give %d", len(res.Data), t.Name, t.Limits.Out))
	}
	if len(res.Output) > t.Limits.Out {
		res.Output, res.Truncated = harness.Clip(res.Output, t.Limits.Out), true
	}
	res.Output = strings.ToValidUTF8(res.Output, "\uFFFD")
	return res, nil
}

// Within is the tool with some more time: whoever waits for another to carry out a call
// lets that one report first that the time was not enough.
func (t Tool) Within(more time.Duration) Tool {
	if t.Limits.Time > 0 {
		t.Limits.Time += more
	}
	return t
}
