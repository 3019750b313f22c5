package harness

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/crash"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/tool/schema"
)

type loop struct {
	Options
	specs    []contract.ToolSpec
	schemas  map[string]*schema.Schema
	seen     *repeats
	ids      map[string]bool // of calls, over all turns
	turns    []Record
	index    int // of the next turn
	notes    []string
	nudges   int
	spent    contract.Usage
	started  time.Time
	paused   atomic.Int64 // nanoseconds that do not count against the budget
	lastText string
	stopWith string // set when repetition was found
}

func (l *loop) compile() error {
	l.schemas = make(map[string]*schema.Schema, len(l.specs))
	for _, s := range l.specs {
		c, err := schema.Compile(s.Schema)
		if err != nil {
			return fault.New("harness.Run", fault.Invalid, "", fmt.Errorf("tool %s: %w", s.Name, err))
		}
		l.schemas[s.Name] = c
	}
	return nil
}

func (l *loop) usage() contract.Usage {
	u := l.spent
	u.WallMS = l.Spent.WallMS + l.elapsed().Milliseconds()
	return u
}

func (l *loop) elapsed() time.Duration {
	return max(0, l.Now().Sub(l.started)-time.Duration(l.paused.Load()))
}

// over returns which budget is used up, or "".
func (l *loop) over(ctx context.Context) string {
	b, u := l.Budget, l.usage()
	switch {
	case l.index >= l.Limits.Turns:
		return fmt.Sprintf("%d model turns", l.Limits.Turns)
	case b.WallS > 0 && u.WallMS >= int64(b.WallS)*1000 && l.more(ctx) <= 0:
		return fmt.Sprintf("%d seconds", b.WallS)
	case b.ToolCalls > 0 && u.ToolCalls >= b.ToolCalls:
		return fmt.Sprintf("%d tool calls", b.ToolCalls)
	case b.Tokens > 0 && u.TokensIn+u.TokensOut >= b.Tokens:
		return fmt.Sprintf("%d tokens", b.Tokens)
	case b.CostUSD > 0 && u.CostUSD >= b.CostUSD:
		return fmt.Sprintf("%.4g USD", b.CostUSD)
	}
	return ""
}

func overBudget(what string) Outcome {
	return Outcome{Reason: Budget, Detail: "The budget of " + what + " is used up."}
}

// errWall marks a context that ended because the wall-clock budget did.
var errWall = errors.New("wall-clock budget used up")

// within bounds ctx by what is left of the wall-clock budget.
func (l *loop) within(parent context.Context) (context.Context, context.CancelFunc) {
	if l.Budget.WallS <= 0 {
		return context.WithCancel(parent)
	}
	ctx, cancel := context.WithCancelCause(parent)
	var timer *awake.Timer
	set := make(chan struct{})
	timer = awake.AfterFunc(max(l.left(), 0), func() {
		<-set
		more := l.more(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case more > 0:
			timer.Reset(more)
			return
		}
		cancel(errWall)
	})
	close(set)
	return ctx, func() { cancel(nil); timer.Stop() }
}

func (l *loop) left() time.Duration {
	return time.Duration(l.Budget.WallS)*time.Second - time.Duration(l.Spent.WallMS)*time.Millisecond - l.elapsed()
}

// more asks the host what is left of the wall clock when this loop's own count says that
// nothing is. Time in which the host did not run no longer counts from then on.
func (l *loop) more(ctx context.Context) time.Duration {
	if l.Used == nil {
		return l.left()
	}
	used, err := l.Used(ctx)
	if err != nil {
		return l.left()
	}
	l.paused.Add(int64(max(0, l.elapsed()-used)))
	return l.left()
}

func (l *loop) run(ctx context.Context) (Outcome, error) {
	// A loop that was interrupted between a model's answer and its returns first
	// finishes that turn.
	if n := len(l.turns); n > 0 && l.turns[n-1].Returns == nil && len(calls(l.turns[n-1].Message)) > 0 && !defence.Off(defence.LoopReturns) {
		l.turns[n-1].Returns = []contract.Message{lost(l.turns[n-1].Message)}
	}
	for {
		if err := ctx.Err(); err != nil {
			return Outcome{}, fault.Wrap("harness.Run", context.Cause(ctx))
		}
		if what := l.over(ctx); what != "" {
			return overBudget(what), nil
		}
		req, err := l.request(ctx)
		if err != nil {
			return Outcome{}, fault.Wrap("harness.Run", err)
		}
		if what := l.over(ctx); what != "" {
			return overBudget(what), nil
		}
		turn, out, err := l.ask(ctx, req)
		if err != nil || out.Reason != "" {
			return out, err
		}
		out, err = l.take(ctx, turn)
		if err != nil || out.Reason != "" {
			return out, err
		}
	}
}

// request builds the next request: wake context, recent turns, notes.
func (l *loop) request(ctx context.Context) (contract.TurnRequest, error) {
	asleep := l.Now()
	if l.Steer != nil {
		said, err := l.Steer(ctx)
		if err != nil {
			return contract.TurnRequest{}, err
		}
		for _, s := range said {
			l.notes = append(l.notes, "The user says: "+Clip(s, 4096))
		}
	}
	window, elided := l.window(l.Limits.Context / 2)
	wake, err := l.Wake(ctx, State{Turn: l.index, Elided: elided, Spent: l.usage()})
	if err != nil {
		return contract.TurnRequest{}, err
	}
	l.paused.Add(int64(max(0, l.Now().Sub(asleep))))
	l.notes = append(l.notes, l.warnings()...)
	wake = Clip(wake, l.Limits.Context/2)
	if wake == "" {
		wake = "(no context)"
	}
	msgs := append([]contract.Message{{Role: contract.MessageUser, Parts: []contract.Part{{Text: wake}}}}, window...)
	if len(l.notes) > 0 {
		note := Clip(strings.Join(l.notes, "\n"), 12<<10)
		last := &msgs[len(msgs)-1]
		if last.Role == contract.MessageUser {
			last.Parts = append(append([]contract.Part(nil), last.Parts...), contract.Part{Text: note})
		} else {
			msgs = append(msgs, contract.Message{Role: contract.MessageUser, Parts: []contract.Part{{Text: note}}})
		}
		l.notes = nil
	} else if msgs[len(msgs)-1].Role == contract.MessageAssistant {
		msgs = append(msgs, contract.Message{Role: contract.MessageUser, Parts: []contract.Part{{Text: "Go on."}}})
	}
	return contract.TurnRequest{Model: l.ModelName, System: l.System, Messages: msgs, Tools: l.specs, MaxTokens: l.Limits.TurnTokens}, nil
}

// warnings tells the model when a budget is nearly used up.
func (l *loop) warnings() []string {
	var out []string
	u := l.usage()
	if left := l.Limits.Turns - l.index; left <= 3 {
		out = append(out, fmt.Sprintf("%d model turns are left.", left))
	}
	if b := l.Budget.ToolCalls; b > 0 && b-u.ToolCalls <= 3 {
		out = append(out, fmt.Sprintf("%d tool calls are left.", b-u.ToolCalls))
	}
	if b := l.Budget.Tokens; b > 0 && (u.TokensIn+u.TokensOut)*5 >= b*4 {
		out = append(out, fmt.Sprintf("%d tokens are left.", b-u.TokensIn-u.TokensOut))
	}
	if b := int64(l.Budget.WallS) * 1000; b > 0 && u.WallMS*5 >= b*4 {
		out = append(out, fmt.Sprintf("%d seconds are left.", (b-u.WallMS)/1000))
	}
	if len(out) > 0 && l.EndTool != "" {
		out = append(out, "Bring your work into a good state and end with "+l.EndTool+".")
	}
	return out
}

// ask gets one turn, trying again when the error may pass.
func (l *loop) ask(ctx context.Context, req contract.TurnRequest) (contract.Turn, Outcome, error) {
	for try := 1; ; try++ {
		turnCtx, cancel := l.within(ctx)
		turn, err := l.Model.Turn(turnCtx, req, l.OnDelta)
		wall := context.Cause(turnCtx) == errWall
		cancel()
		if err == nil {
			return turn, Outcome{}, nil
		}
		if ctx.Err() != nil {
			return contract.Turn{}, Outcome{}, fault.Wrap("harness.Run", context.Cause(ctx))
		}
		if wall {
			return contract.Turn{}, overBudget(fmt.Sprintf("%d seconds", l.Budget.WallS)), nil
		}
		var te *contract.TurnError
		if !errors.As(err, &te) {
			te = &contract.TurnError{Code: "unavailable", Message: err.Error(), Retriable: true}
		}
		if te.Code == "budget" {
			return contract.Turn{}, Outcome{Reason: Budget, Detail: Clip(te.Message, 1000)}, nil
		}
		if !te.Retriable || try >= l.Limits.ModelAttempts {
			return contract.Turn{}, Outcome{Reason: ModelError,
				Detail: fmt.Sprintf("The model gave no answer after %d tries: %s", try, Clip(te.Error(), 1000))}, nil
		}
		t := time.NewTimer(l.Backoff(try))
		select {
		case <-ctx.Done():
			t.Stop()
			return contract.Turn{}, Outcome{}, fault.Wrap("harness.Run", context.Cause(ctx))
		case <-t.C:
		}
		if what := l.over(ctx); what != "" {
			return contract.Turn{}, overBudget(what), nil
		}
	}
}

// take records a turn, runs its calls and records their returns.
func (l *loop) take(ctx context.Context, turn contract.Turn) (Outcome, error) {
	u := turn.Usage
	u.ToolCalls, u.WallMS = 0, 0
	if u.Validate() == nil {
		l.spent = l.spent.Add(u)
	} else {
		u = contract.Usage{}
	}
	msg, faults := sanitize(turn.Message, l.Limits, l.index, l.ids)
	if t := textOf(msg); t != "" {
		l.lastText = t
	}
	rec := Record{Index: l.index, Message: msg, Usage: u}
	l.index++
	if err := l.record(ctx, rec); err != nil {
		return Outcome{}, err
	}
	crash.At("turn.recorded")
	if turn.Stop == contract.StopRefusal {
		return Outcome{Reason: Refused, Detail: "The model declined: " + Clip(textOf(msg), 1000)}, nil
	}
	cs := calls(msg)
	if len(cs) == 0 {
		l.turns = append(l.turns, rec)
		return l.nudge(turn.Stop), nil
	}
	returns := contract.Message{Role: contract.MessageUser}
	var end, useful bool
	for _, c := range cs {
		if err := ctx.Err(); err != nil {
			return Outcome{}, fault.Wrap("harness.Run", context.Cause(ctx))
		}
		var ret Return
		switch {
		case end:
			ret = Return{Content: "Not run: an earlier call of this turn ended the work.", IsError: true}
		case l.Budget.ToolCalls > 0 && l.spent.ToolCalls >= l.Budget.ToolCalls && c.Name != l.EndTool:
			ret = Return{Content: "Not run: the budget of tool calls is used up.", IsError: true}
		default:
			r, ok, err := l.call(ctx, c, faults[c.ID])
			if err != nil {
				return Outcome{}, err
			}
			ret, useful = r, useful || ok
		}
		end = end || ret.End
		ret.Content = Clip(ret.Content, l.Limits.Return)
		if ret.Content == "" {
			ret.Content = "(no output)"
		}
		returns.Parts = append(returns.Parts, contract.Part{Return: &contract.ToolReturn{ID: c.ID, Content: ret.Content, IsError: ret.IsError}})
	}
	rec.Returns = []contract.Message{returns}
	rec.Usage.ToolCalls = len(cs)
	l.turns = append(l.turns, rec)
	if err := l.record(ctx, rec); err != nil {
		return Outcome{}, err
	}
	if end {
		return Outcome{Reason: Finished}, nil
	}
	if l.stopWith != "" {
		return Outcome{Reason: Repetition, Detail: l.stopWith}, nil
	}
	if useful {
		l.nudges = 0
		return Outcome{}, nil
	}
	return l.nudge(contract.StopToolUse), nil
}

// call checks and runs one call. ok says whether the tool ran at all.
func (l *loop) call(ctx context.Context, c contract.ToolCall, broken string) (ret Return, ok bool, err error) {
	s := l.schemas[c.Name]
	switch {
	case broken != "":
		ret = Return{Content: broken, IsError: true}
	case s == nil:
		ret = Return{Content: fmt.Sprintf("There is no tool %q. Tools: %s.", c.Name, l.names()), IsError: true}
	default:
		if bad := s.Validate(c.Args); bad != nil {
			ret = Return{Content: "Not run. " + Clip(bad.Error(), 1000), IsError: true}
			break
		}
		l.spent.ToolCalls++
		callCtx, cancel := l.within(ctx)
		crash.At("tool.calling")
		ret, err = l.Tools.Call(callCtx, c)
		wall := context.Cause(callCtx) == errWall
		cancel()
		if ctx.Err() != nil {
			return Return{}, false, fault.Wrap("harness.Run", context.Cause(ctx))
		}
		if err != nil {
			if !wall {
				return Return{}, false, fault.Wrap("harness.Run", err)
			}
			ret = Return{Content: "Stopped: the time budget is used up.", IsError: true}
		}
		ok = true
	}
	key, n := l.seen.add(c, ret, ok && !ret.IsError && !l.Tools.ReadOnly(c.Name))
	if ret.End || n < l.Limits.RepeatWarn {
		return ret, ok, nil
	}
	// The model is stopped for going on after it could read the warning, not for calls that
	// it had already made in the same turn.
	switch fresh, heard := l.seen.warn(key, l.index); {
	case heard && n >= l.Limits.RepeatStop:
		l.stopWith = fmt.Sprintf("The model made the same call of %s %d times with the same outcome.", c.Name, n)
	case heard || fresh:
		l.notes = append(l.notes, fmt.Sprintf("You have called %s %d times with the same arguments and the same outcome. Try something else.", c.Name, n))
	}
	return ret, ok, nil
}

// nudge asks the model for a usable call, a bounded number of times in a row.
func (l *loop) nudge(stop contract.StopReason) Outcome {
	l.nudges++
	if l.nudges >= l.Limits.Nudges {
		return Outcome{Reason: Silence, Detail: fmt.Sprintf("The model gave no usable tool call in %d turns in a row.", l.nudges)}
	}
	switch stop {
	case contract.StopLength, contract.StopTruncate:
		l.notes = append(l.notes, "Your last answer was too long and was cut off. Answer with one short tool call.")
	default:
		note := "Your last answer had no usable tool call. Tools: " + l.names() + "."
		if l.EndTool != "" {
			note += " When you are done, call " + l.EndTool + "."
		}
		l.notes = append(l.notes, note)
	}
	return Outcome{}
}

func (l *loop) names() string {
	names := make([]string, len(l.specs))
	for i, s := range l.specs {
		names[i] = s.Name
	}
	return strings.Join(names, ", ")
}

func (l *loop) record(ctx context.Context, r Record) error {
	if l.Record == nil {
		return nil
	}
	return fault.Wrap("harness.Record", l.Options.Record(ctx, r))
}
