package task

import (
	"context"
	"encoding/json"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch/catalogue"
	"choir.dev/choiros/internal/dispatch/outside"
	"choir.dev/choiros/internal/tool"
)

// outside makes a call that changes something outside of the computer.
func (a *attempt) outside(ctx context.Context, call string, h catalogue.HostTool, args json.RawMessage) (tool.Result, error) {
	m := outside.Maker{Run: a.run, Ref: a.ref, CID: a.host.CID, Blobs: a.host.Blobs, Lock: &a.host.leaving, CleanUp: a.cleanUp}
	return m.Make(context.WithValue(ctx, attemptKey{}, a), call, *h.Outside, args, func(ctx context.Context, leaves json.RawMessage) (tool.Result, error) {
		return h.Call(ctx, catalogue.HostCall{Run: a.ref.Run, Task: a.ref.Task, Args: leaves})
	})
}

// endEffects ends, as unknown, what no call of the task waits for any more. If that can't be recorded now, the end of the run
// or the next start does it; whoever reads of it meanwhile is told that it is unknown.
func (a *attempt) endEffects() {
	ctx, cancel := a.cleanUp()
	defer cancel()
	if err := outside.End(ctx, a.run, a.ref.Task, "nothing waits for its answer any more: the call, its box or the computer ended"); err != nil && !closing(a.run) {
		a.host.Logger.Error("that the outcome of an effect is unknown could not be recorded; it is at the end of the run", "task", a.ref.Task, "error", err)
	}
}

// effects is what the attempt changed outside, or may have.
func (a *attempt) effects() []contract.EffectOutside {
	return outside.Of(a.run, a.ref)
}
