package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/crash"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/tool/schema"
)

type loop struct {
	Options
	specs    []contract.ToolSpec
	schemas  map[string]*schema.Schema
	seen     *repeats
	ids      map[string]bool // of calls, over all turns
	past     history
	index    int // of the next turn
	notes    []string
	nudges   int
	spent    contract.Usage
	started  time.Time
	paused   atomic.Int64 // nanoseconds that do not count against the budget
	lastText string
	stopWith string  // set when repetition was found
	ended    Outcome // how the loop that is resumed had ended; without a Reason if it had not
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
	if err := l.close(ctx); err != nil {
		return Outcome{}, fault.Wrap("harness.Run", err)
	}
	if l.ended.Reason != "" {
		return l.ended, nil
	}
	for {
		if err := ctx.Err(); err != nil {
			return Outcome{}, fault.Wrap("harness.Run", context.Cause(ctx))
		}
		if what := l.over(ctx); what != "" {
			return overBudget(what), nil
		}
		told, out, err := l.tell(ctx)
		if err != nil || out.Reason != "" {
			return out, fault.Wrap("harness.Run", err)
		}
		if what := l.over(ctx); what != "" {
			return overBudget(what), nil
		}
		turn, out, err := l.ask(ctx, told)
		if err != nil || out.Reason != "" {
			return out, err
		}
		out, err = l.take(ctx, told, turn)
		if err != nil || out.Reason != "" {
			return out, err
		}
	}
}

// since stands, once, between an opening and what was told with it. What is above it may quote anything, so it does not
// count as told.
const since = "\n\n## Said since\n\n"

// maxTold bounds what is told at the end of one request, in bytes.
const maxTold = 16 << 10

// tell returns what the next request says last, and makes room for it. Of the first request that is the opening, too.
func (l *loop) tell(ctx context.Context) (string, Outcome, error) {
	asleep := l.Now()
	if l.News != nil {
		news, err := l.News(ctx)
		if err != nil {
			return "", Outcome{}, err
		}
		for _, s := range news {
			if s = Clip(s, maxTold/2); s != "" && !l.past.told(s) {
				l.notes = append(l.notes, s)
			}
		}
	}
	if l.past.opening == "" {
		opening, err := l.Opening(ctx)
		if err != nil {
			return "", Outcome{}, err
		}
		opening = Clip(strings.ReplaceAll(opening, "\x00", "\uFFFD"), l.Limits.Context/3)
		for strings.Contains(opening, since) {
			opening = strings.ReplaceAll(opening, since, "\n\n")
		}
		opening = cmp.Or(opening, "(no context)")
		l.past.opening = opening
	}
	l.paused.Add(int64(max(0, l.Now().Sub(asleep))))
	l.notes = append(l.notes, l.budgets(ctx)...)
	told := Clip(strings.Join(l.notes, "\n"), maxTold)
	l.notes = nil
	if l.full(told) {
		if _, out, err := l.compact(ctx, false); err != nil || out.Reason != "" {
			return "", out, err
		}
	}
	if n := len(l.past.turns); told == "" && n > 0 && len(calls(l.past.turns[n-1].Message)) == 0 {
		told = goOn
	}
	if l.index == 0 {
		// It is part of the opening, which is recorded with the first turn.
		if told != "" {
			l.past.opening += since + told
			l.past.tell(told)
		}
		told = ""
	}
	l.past.tell(told)
	return told, Outcome{}, nil
}

// requestOf is a request with these messages. It differs from the one before only in them.
func (l *loop) requestOf(messages []contract.Message) contract.TurnRequest {
	return contract.TurnRequest{Model: l.ModelName, System: l.System, Messages: messages, Tools: l.specs, MaxTokens: l.Limits.TurnTokens}
}

// budgets tells the model what is left of its budgets: every few turns, and in each turn once little is left.
func (l *loop) budgets(ctx context.Context) []string {
	var out []string
	u, few := l.usage(), false
	say := func(left, of int64, unit string) {
		few = few || left*5 <= of
		out = append(out, fmt.Sprintf("%d of %d %s", max(left, 0), of, unit))
	}
	say(int64(l.Limits.Turns-l.index), int64(l.Limits.Turns), "model turns")
	if b := l.Budget.ToolCalls; b > 0 {
		say(int64(b-u.ToolCalls), int64(b), "tool calls")
	}
	if b := l.Budget.Tokens; b > 0 {
		say(b-u.TokensIn-u.TokensOut, b, "tokens")
	}
	if b := int64(l.Budget.WallS); b > 0 {
		left := l.left()
		if left*5 <= time.Duration(b)*time.Second {
			left = l.more(ctx) // it may have waited for its model
		}
		say(int64(left/time.Second), b, "seconds")
	}
	if b := l.Budget.CostUSD; b > 0 {
		few = few || (b-u.CostUSD)*5 <= b
		out = append(out, fmt.Sprintf("%.2f of %.2f USD", max(b-u.CostUSD, 0), b))
	}
	if !few && l.index%tellLeft != 0 {
		return nil
	}
	lines := []string{"Left: " + strings.Join(out, ", ") + "."}
	if few && l.EndTool != "" {
		lines = append(lines, "Little is left. Bring your work into a good state and end with "+l.EndTool+".")
	}
	return lines
}

// tellLeft is in every how many turns the model is told what is left.
const tellLeft = 8

// ask gets one turn, trying again when the error may pass. A request that the service calls too long is made
// again with a compacted history.
func (l *loop) ask(ctx context.Context, told string) (contract.Turn, Outcome, error) {
	compactions := 0
	for try := 1; ; try++ {
		req := l.requestOf(l.past.messages(l.past.turns, l.turnLimit(), told))
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
		if (te.Code == "overflow" || te.Code == "too_large") && compactions < maxCompactions {
			compactions++
			room, out, err := l.compact(ctx, true)
			if err != nil || out.Reason != "" {
				return contract.Turn{}, out, err
			}
			if room {
				try--
				continue
			}
		}
		if !te.Retriable || try >= l.Limits.ModelAttempts {
			after := ""
			if try > 1 {
				after = fmt.Sprintf(" after %d tries", try)
			}
			return contract.Turn{}, Outcome{Reason: ModelError, Detail: fmt.Sprintf("The model gave no answer%s: %s", after, Clip(te.Error(), 1000))}, nil
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

// maxCompactions bounds how often a request that is too long is made again.
const maxCompactions = 3

// take records a turn, runs its calls and records their returns.
func (l *loop) take(ctx context.Context, told string, turn contract.Turn) (Outcome, error) {
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
	rec := Record{Index: l.index, Told: told, Message: msg, Stop: turn.Stop, Usage: u}
	l.index++
	if err := l.record(ctx, rec); err != nil {
		return Outcome{}, err
	}
	crash.At("turn.recorded")
	cs := calls(msg)
	if turn.Stop == contract.StopRefusal || len(cs) == 0 {
		l.past.turns = append(l.past.turns, rec)
		return l.judge(rec, false), nil
	}
	made := l.spent.ToolCalls
	rets, end, err := l.callAll(ctx, cs, faults)
	if err != nil {
		return Outcome{}, err
	}
	returns := contract.Message{Role: contract.MessageUser}
	for i, c := range cs {
		returns.Parts = append(returns.Parts, contract.Part{Return: &contract.ToolReturn{ID: c.ID, Content: rets[i].Content, Images: rets[i].Images, IsError: rets[i].IsError}})
	}
	rec.Returns = []contract.Message{returns}
	rec.Usage.ToolCalls = l.spent.ToolCalls - made
	if err := l.record(ctx, rec); err != nil {
		return Outcome{}, err
	}
	l.past.turns = append(l.past.turns, rec)
	return l.judge(rec, end), nil
}

// judge says whether the loop ends behind a turn, whose calls were counted. end says that a call of it ended the work.
func (l *loop) judge(r Record, end bool) Outcome {
	switch {
	case end:
		return Outcome{Reason: Finished}
	case r.Stop == contract.StopRefusal:
		return Outcome{Reason: Refused, Detail: "The model declined: " + Clip(textOf(r.Message), 1000)}
	case l.stopWith != "":
		return Outcome{Reason: Repetition, Detail: l.stopWith}
	case r.Usage.ToolCalls > 0:
		l.nudges = 0
		return Outcome{}
	case len(calls(r.Message)) > 0:
		return l.nudge(contract.StopToolUse)
	}
	return l.nudge(r.Stop)
}

// shown is what a call of a turn of n calls returned as the model sees it.
func (l *loop) shown(ret Return, n int) Return {
	ret.Content = Clip(ret.Content, min(l.Limits.Return, max(l.turnLimit()/n, 1<<10)))
	if ret.Content == "" {
		ret.Content = "(no output)"
	}
	return ret
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
	if r.Index == 0 {
		r.Told = l.past.opening
	}
	return fault.Wrap("harness.Record", l.Options.Record(ctx, r))
}
