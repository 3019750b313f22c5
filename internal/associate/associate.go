package associate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/harness"
	"choir.dev/choiros/internal/tool"
	"choir.dev/choiros/internal/tool/boxtools"
)

// MaxMessage bounds the body of POST /task, in bytes.
const MaxMessage = 16 << 20

// Message is the body of POST /task: one attempt at one task. Fence is sent with every
// request of this attempt to the host. Turns are those that an interrupted attempt
// recorded, and Spent what it used.
type Message struct {
	Task  contract.DirectorTask `json:"task"`
	Fence string                `json:"fence"`
	Model string                `json:"model,omitempty"`
	// Tools are what the host offers the model of an agent; the loop knows no others.
	Tools []tool.Tool `json:"tools,omitempty"`
	// MaxTurns bounds the model's turns; 0 leaves the harness's default.
	MaxTurns int `json:"max_turns,omitempty"`
	// Window is how many tokens the model reads at once; 0: not known.
	Window int     `json:"window,omitempty"`
	Inputs []Input `json:"inputs,omitempty"`
	// Kept is what people told the computer to keep. It stands in each request behind what the loop says of itself.
	Kept string `json:"kept,omitempty"`
	// Brief is what the host says of the tree and the machine, as sections of Markdown.
	Brief     string                  `json:"brief,omitempty"`
	Turns     []contract.TurnRecorded `json:"turns,omitempty"`
	Spent     contract.Usage          `json:"spent"`
	Heartbeat int                     `json:"beat_ms,omitempty"` // 2000 when 0
}

// Input is the text of something the task may read.
type Input struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// Draft is how the loop says that an attempt went. What was changed, what ran and whether
// it verifies is not part of it: the host knows.
type Draft struct {
	Status        contract.ResultStatus `json:"status"`
	Summary       string                `json:"summary"`
	Question      string                `json:"question,omitempty"`
	SuggestedNext string                `json:"suggested_next,omitempty"`
	Requests      []contract.Request    `json:"requests,omitempty"`
	Reason        harness.Reason        `json:"reason,omitempty"` // why an agent's loop ended
	Usage         contract.Usage        `json:"usage"`
	Turns         int                   `json:"turns,omitempty"`
}

// WakeReply is the host's answer to POST /wake, which waits while the run is paused.
type WakeReply struct {
	Notes []string `json:"notes,omitempty"` // what the user and the host said so far; each is told once
}

// TurnReply is the host's answer to POST /turns.
type TurnReply struct {
	// Wake is what POST /wake would answer now; nil: it has to be asked, for it would wait, or no request follows this turn.
	Wake *WakeReply `json:"wake,omitempty"`
}

// FactsRequest is the body of POST /facts: what the log knows of the attempt, in at most so many bytes.
type FactsRequest struct {
	Most int `json:"most"`
}

// Facts is the answer to POST /facts.
type Facts struct {
	Text string `json:"text"`
}

// Options of the loop. Client reaches the host over the box's tether.
type Options struct {
	Client *http.Client
	Base   string // such as http://host; empty means that
	Limits harness.Limits
	// Backoff is the pause between tries of a model turn; nil: the harness's.
	Backoff func(int) time.Duration
}

// Handler serves POST /task: the body is a Message, the answer NDJSON of
// harness.Line[Draft]. Ending the request cancels the task.
func Handler(o Options) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /task", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxMessage))
		var m Message
		if err == nil {
			err = contract.DecodeStrict(body, MaxMessage, &m)
		}
		if err == nil {
			err = m.Task.Validate()
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		beat := time.Duration(m.Heartbeat) * time.Millisecond
		if beat <= 0 {
			beat = 2 * time.Second
		}
		harness.Stream(w, r, beat, func(ctx context.Context) Draft { return Execute(ctx, o, m) })
	})
	return mux
}

// Execute carries out one attempt. It always returns an answer: what went wrong is a Draft
// with status failed or cancelled.
func Execute(ctx context.Context, o Options, m Message) Draft {
	h := harness.Host{Client: o.Client, Base: o.Base, Fence: m.Fence}
	var d Draft
	var err error
	switch m.Task.Kind {
	case contract.KindExec, contract.KindGit:
		d, err = steps(ctx, h, m)
	case contract.KindAgent, contract.KindInspect, contract.KindResearch, contract.KindWrite:
		d, err = agent(ctx, o, h, m)
	default:
		err = fmt.Errorf("tasks of kind %q are not executed here", m.Task.Kind)
	}
	if err != nil {
		d.Status, d.Summary = contract.ResultFailed, harness.Clip(fault.Text(err), 4096)
		if ctx.Err() != nil {
			d.Status, d.Summary = contract.ResultCancelled, "The task was cancelled."
		}
	}
	if d.Summary == "" {
		d.Summary = "(no summary)"
	}
	return d
}

// called is what the host answered to a call. If the tool can't do it, that is a Result with OK
// false; so is a refusal of the host, for the model should see it, unless the loop itself is what is refused, or its turn.
func called(ask func(*tool.Result) error) (tool.Result, error) {
	var res tool.Result
	err := ask(&res)
	var no *harness.Refusal
	if errors.As(err, &no) && no.Status != http.StatusGone && no.Status != http.StatusUnprocessableEntity {
		return tool.Result{Output: "refused: " + no.Error()}, nil
	}
	return res, err
}

// steps runs the steps of a task of kind exec or git in order and stops at the
// first that fails.
func steps(ctx context.Context, h harness.Host, m Message) (Draft, error) {
	d := Draft{Status: contract.ResultOK}
	began := time.Now()
	for i, s := range m.Task.Steps {
		name, args, err := StepCall(s)
		if err != nil {
			return d, err
		}
		res, err := call(ctx, h, fmt.Sprintf("step-%d", i), name, args)
		d.Usage.ToolCalls++
		d.Usage.WallMS = time.Since(began).Milliseconds()
		if err != nil {
			return d, err
		}
		if !res.OK || (res.Command != nil && res.Command.ExitCode != 0) {
			d.Status = contract.ResultFailed
			d.Summary = fmt.Sprintf("Step %d of %d (%s) failed: %s", i+1, len(m.Task.Steps), name, harness.Clip(res.Output, 2000))
			return d, nil
		}
		if m.Task.Kind == contract.KindGit {
			d.Summary += harness.Clip(res.Output, 4096) + "\n"
		}
	}
	if m.Task.Kind == contract.KindGit {
		d.Summary = harness.Clip(d.Summary, 16<<10)
		return d, nil
	}
	d.Summary = fmt.Sprintf("All %d steps ran.", len(m.Task.Steps))
	return d, nil
}

// Git is the tool that a git step calls. The host carries it out, as the history is not in
// the task's box.
const Git = "git"

// StepCall is a deterministic step as a tool call. The host accepts from a task of kind
// exec or git only the calls of its own steps, which it compares with this.
func StepCall(s contract.Step) (name string, args json.RawMessage, err error) {
	var v any
	switch {
	case s.Run != nil:
		name, v = boxtools.Run, s.Run
	case s.Write != nil:
		// Whoever wrote the steps has read what they replace, or does not care for it.
		name, v = boxtools.Write, struct {
			*contract.WriteStep
			Overwrite bool `json:"overwrite"`
		}{s.Write, true}
	case s.Patch != nil:
		name, v = boxtools.Patch, map[string]string{"patch": s.Patch.Diff}
	case s.Git != nil:
		name, v = Git, s.Git
	default:
		return "", nil, errors.New("the step is empty")
	}
	args, err = json.Marshal(v)
	return name, args, err
}
