package harness

import (
	"context"
	"fmt"
	"sync"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/crash"
	"choir.dev/choiros/internal/fault"
)

// maxParallel is how many calls that only read are made at a time.
const maxParallel = 4

// callAll makes a turn's calls in their order; those next to each other that only read are made at the same time. It
// returns what each returned, as the model sees it, and whether the loop ends.
func (l *loop) callAll(ctx context.Context, cs []contract.ToolCall, faults map[string]string) (rets []Return, end bool, err error) {
	rets = make([]Return, len(cs))
	for i := 0; i < len(cs); {
		n := 1
		for l.reads(cs[i], faults) && i+n < len(cs) && n < maxParallel && l.reads(cs[i+n], faults) {
			n++
		}
		ran, errs := make([]bool, n), make([]error, n)
		var calls sync.WaitGroup
		for k, c := range cs[i : i+n] {
			if err := ctx.Err(); err != nil {
				calls.Wait()
				return nil, false, fault.Wrap("harness.Run", context.Cause(ctx))
			}
			if why := l.refused(c, end, faults[c.ID]); why != "" {
				rets[i+k] = Return{Content: why, IsError: true}
				continue
			}
			ran[k] = true
			l.spent.ToolCalls++
			do := func() { rets[i+k], errs[k] = l.callOne(ctx, c) }
			if n == 1 {
				do()
				continue
			}
			calls.Go(do)
		}
		calls.Wait()
		for k, c := range cs[i : i+n] {
			if errs[k] != nil {
				return nil, false, errs[k]
			}
			rets[i+k] = l.shown(rets[i+k], len(cs)) // what is counted is what a resumed loop finds recorded
			l.repeated(c, rets[i+k], ran[k])
			end = end || rets[i+k].End
		}
		i += n
	}
	return rets, end, nil
}

// reads reports whether a call can be made and only reads.
func (l *loop) reads(c contract.ToolCall, faults map[string]string) bool {
	return l.schemas[c.Name] != nil && c.Name != l.EndTool && l.Tools.ReadOnly(c.Name) && faults[c.ID] == ""
}

// refused says why a call is not made; "" if it is.
func (l *loop) refused(c contract.ToolCall, end bool, broken string) string {
	s := l.schemas[c.Name]
	switch {
	case end:
		return "Not run: an earlier call of this turn ended the work."
	case l.Budget.ToolCalls > 0 && l.spent.ToolCalls >= l.Budget.ToolCalls && c.Name != l.EndTool:
		return "Not run: the budget of tool calls is used up."
	case broken != "":
		return broken
	case s == nil:
		return fmt.Sprintf("There is no tool %q. Tools: %s.", c.Name, l.names())
	}
	if bad := s.Validate(c.Args); bad != nil {
		return "Not run. " + Clip(bad.Error(), 1000)
	}
	return ""
}

// callOne makes one call that was checked.
func (l *loop) callOne(ctx context.Context, c contract.ToolCall) (Return, error) {
	callCtx, cancel := l.within(ctx)
	defer cancel()
	crash.At("tool.calling")
	ret, err := l.Tools.Call(callCtx, c)
	if ctx.Err() != nil {
		return Return{}, fault.Wrap("harness.Run", context.Cause(ctx))
	}
	if err != nil {
		if context.Cause(callCtx) != errWall {
			return Return{}, fault.Wrap("harness.Run", err)
		}
		ret = Return{Content: "Stopped: the time budget is used up.", IsError: true}
	}
	return ret, nil
}

// repeated counts a call, and warns or stops a model that makes the same one again and again.
func (l *loop) repeated(c contract.ToolCall, ret Return, ran bool) {
	key, n := l.seen.add(c, ret, ran && !ret.IsError && !l.Tools.ReadOnly(c.Name))
	if ret.End || n < l.Limits.RepeatWarn {
		return
	}
	// The model is stopped for going on after it could read the warning, not for calls that
	// it had already made in the same turn.
	switch fresh, heard := l.seen.warn(key, l.index); {
	case heard && n >= l.Limits.RepeatStop:
		l.stopWith = fmt.Sprintf("The model made the same call of %s %d times with the same outcome.", c.Name, n)
	case heard || fresh:
		l.notes = append(l.notes, fmt.Sprintf("You have called %s %d times with the same arguments and the same outcome. Try something else.", c.Name, n))
	}
}
