package associate

import (
	"context"
	"encoding/json"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/harness"
	"choir.dev/choiros/internal/tool"
)

// recorder tells the host what an agent's loop says, in its order and with few requests. A turn that makes one call goes
// with that call. If the host says with the answer that it has no news, the turn with its returns goes with the loop's next request;
// otherwise it goes by itself, and the host answers what the loop would ask for next. A recorder is used by one loop, whose calls
// are made at the same time only where nothing is held.
type recorder struct {
	host  harness.Host
	held  *contract.TurnRecorded // not told yet
	quiet bool                   // there was no news when the call of the turn that is under way had been made
	awake *WakeReply             // as the host said
	told  WakeReply              // what the loop heard last: all that there is while there is no news
}

// record implements harness.Options.Record.
func (r *recorder) record(ctx context.Context, rec harness.Record) error {
	if err := r.flush(ctx); err != nil {
		return err
	}
	t, quiet := rec.Recorded(), r.quiet
	r.quiet = false
	switch {
	case t.Compacted != nil || calls(t.Message) != 1:
	case len(t.Returns) == 0:
		r.held = &t
		return nil
	case quiet:
		r.held, r.awake = &t, &r.told
		return nil
	}
	return r.post(ctx, t)
}

// ahead and sent implement harness.HTTPModel.
func (r *recorder) ahead() *contract.TurnRecorded { return r.held }
func (r *recorder) sent()                         { r.held = nil }

// flush tells what is held.
func (r *recorder) flush(ctx context.Context) error {
	if r.held == nil {
		return nil
	}
	t := *r.held
	r.held = nil
	return r.post(ctx, t)
}

func (r *recorder) post(ctx context.Context, t contract.TurnRecorded) error {
	var reply TurnReply
	err := r.host.Post(ctx, "/turns", nil, t, &reply)
	if r.awake = reply.Wake; r.awake != nil {
		r.told = *r.awake // the host takes it for heard, whatever the loop does next
	}
	return err
}

// news implements harness.Options.News.
func (r *recorder) news(ctx context.Context) ([]string, error) {
	w := r.awake
	r.awake = nil
	if w == nil {
		w = &WakeReply{}
		if err := r.host.Post(ctx, "/wake", nil, struct{}{}, w); err != nil {
			return nil, err
		}
	}
	r.told = *w
	return w.Notes, nil
}

// call asks the host to run a tool.
func (r *recorder) call(ctx context.Context, c contract.ToolCall) (tool.Result, error) {
	if r.held == nil {
		return call(ctx, r.host, c.ID, c.Name, c.Args)
	}
	t := *r.held
	r.held = nil
	return called(func(res *tool.Result) error {
		h, err := r.host.PostCall(ctx, "/tools/"+c.Name, map[string]string{harness.HeaderCall: c.ID}, t, c.Args, res)
		r.quiet = h.Get(harness.HeaderNews) == "none"
		return err
	})
}

// call asks the host to run one tool.
func call(ctx context.Context, h harness.Host, id, name string, args json.RawMessage) (tool.Result, error) {
	return called(func(res *tool.Result) error {
		return h.Post(ctx, "/tools/"+name, map[string]string{harness.HeaderCall: id}, args, res)
	})
}

func calls(m contract.Message) (n int) {
	for _, p := range m.Parts {
		if p.Call != nil {
			n++
		}
	}
	return n
}
