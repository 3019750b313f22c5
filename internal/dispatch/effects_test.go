package dispatch_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch"
	"choir.dev/choiros/internal/dispatch/catalogue"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/tool"
)

// service is something outside of the computer that takes orders.
type service struct {
	mu     sync.Mutex
	orders []order
	// take is what it does with an order; nil: it takes it.
	take func(ctx context.Context, o order) (tool.Result, error)
}

type order struct {
	What string `json:"what"`
	Key  string `json:"idempotencyKey"`
	Raw  string `json:"-"`
}

func (s *service) call(ctx context.Context, c catalogue.HostCall) (tool.Result, error) {
	o := order{Raw: string(c.Args)}
	if err := json.Unmarshal(c.Args, &o); err != nil {
		return tool.Result{}, err
	}
	s.mu.Lock()
	s.orders = append(s.orders, o)
	take := s.take
	s.mu.Unlock()
	if take != nil {
		return take(ctx, o)
	}
	return tool.Result{OK: true, Output: "ordered " + o.What}.End(contract.EffectDone), nil
}

// sent is what it was asked for.
func (s *service) sent() []order {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.orders)
}

// unknown is an answer that does not come.
func unknown(context.Context, order) (tool.Result, error) {
	return tool.Failed("it did not answer").End(contract.EffectUnknown), nil
}

// newOutside is a house whose tasks may order something from a service, which takes idempotency keys if keys is set.
func newOutside(t *testing.T, keys, harmless bool) (*house, *service) {
	h, s := newHouse(t), &service{}
	o := &catalogue.Outside{Kind: contract.EffectMCP, Target: "shop order", Harmless: harmless}
	properties := `"what":{"type":"string"}`
	if keys {
		o.Key = "idempotencyKey"
		properties += `,"idempotencyKey":{"type":"string"}`
	}
	h.tune = func(opts *dispatch.Options) {
		opts.Tools = append(opts.Tools, catalogue.HostTool{Outside: o, Call: s.call, Tool: tool.Tool{Name: "order", Description: "Order something.", Granted: true,
			Effects: []tool.Effect{tool.Network, tool.Irreversible}, Callers: []tool.Caller{tool.Agent}, Limits: tool.Limits{In: 1 << 10, Out: 8 << 10, Time: time.Minute},
			Schema: tool.Object(properties, "what")}})
	}
	h.sleep()
	h.wake()
	return h, s
}

var buys = m{"kind": "agent", "goal": "Order it", "tools": []string{"order"}, "verify": m{"profile": "none"}}

func orders(id, what string) contract.Part { return use(id, "order", m{"what": what}) }

// returns is what each call of the log returned, by its id.
func (h *house) returns() map[string]string {
	out := map[string]string{}
	for _, p := range h.events("tool.returned") {
		r := p.(*contract.ToolReturned)
		out[r.Call] = r.Output
	}
	return out
}

func (h *house) intended() (out []*contract.EffectIntended) {
	for _, p := range h.events("effect.intended") {
		out = append(out, p.(*contract.EffectIntended))
	}
	return out
}

func (h *house) ended() (out []*contract.EffectEnded) {
	for _, p := range h.events("effect.ended") {
		out = append(out, p.(*contract.EffectEnded))
	}
	return out
}

// resolve says for a person what they found of an effect.
func (h *house) resolve(run, effect string, found contract.EffectFound) {
	h.t.Helper()
	if _, err := h.log.Append(h.t.Context(), contract.Draft{Actor: contract.Person("u"), Type: "effect.resolved", Subject: "effect/" + effect, Run: run,
		Data: &contract.EffectResolved{Effect: effect, Found: found}}); err != nil {
		h.t.Error(err)
	}
}

// deaf is a log whose process dies at the first event of a type: before it is stored, or right after.
type deaf struct {
	ports.Log
	at    string
	after bool
	dead  chan struct{}
	end   func() <-chan struct{}
	once  sync.Once
	mu    sync.Mutex
	gone  bool
}

func (l *deaf) Append(ctx context.Context, drafts ...contract.Draft) ([]contract.Event, error) {
	l.mu.Lock()
	was := l.gone
	l.gone = l.gone || slices.ContainsFunc(drafts, func(d contract.Draft) bool { return d.Type == l.at })
	now := l.gone
	l.mu.Unlock()
	if now && !was && l.after {
		if _, err := l.Log.Append(context.WithoutCancel(ctx), drafts...); err != nil {
			return nil, err
		}
	}
	if now {
		l.once.Do(func() { close(l.dead) })
		return nil, lastWait(ctx, l.end())
	}
	return l.Log.Append(ctx, drafts...)
}

// dieAt has the process die at the first event of a type while a run goes on, and another one take over.
func (h *house) dieAt(eventType string, after bool) (run string) {
	h.t.Helper()
	h.sleep()
	l := &deaf{at: eventType, after: after, dead: make(chan struct{}), end: func() <-chan struct{} { return h.d.Closed() }}
	h.wrap = func(real ports.Log) ports.Log { l.Log = real; return l }
	h.wake()
	run = h.submit("go")
	select {
	case <-l.dead:
	case <-time.After(40 * time.Second):
		h.t.Fatalf("no %s\n%s", eventType, h.story())
	}
	h.restart()
	return run
}

// TestAnEffectIsInTheLogBeforeItLeaves: when a service is asked, the log has what it is asked for; and where the log takes
// nothing, nobody is asked.
func TestAnEffectIsInTheLogBeforeItLeaves(t *testing.T) {
	h, s := newOutside(t, true, false)
	var before []*contract.EffectIntended
	s.take = func(_ context.Context, o order) (tool.Result, error) {
		before = h.intended()
		return tool.Result{OK: true, Output: "ordered"}.End(contract.EffectDone), nil
	}
	h.model.director = plan(buys)
	h.model.associate = steps(orders("c0", "a ladder"))
	if rep := h.report(h.submit("order")); rep.Status != contract.RunDone {
		t.Fatalf("%+v\n%s", rep, h.story())
	}
	h.quiet()
	sent := s.sent()
	if len(sent) != 1 || len(before) != 1 || before[0].Call != "c0" || before[0].Target != "shop order" || before[0].Key == "" || before[0].Key != sent[0].Key || !strings.Contains(before[0].What, "a ladder") {
		t.Fatalf("when it was asked for %+v the log had %+v", sent, before)
	}
	if e := h.ended(); len(e) != 1 || e[0].Outcome != contract.EffectDone || e[0].Detail != "ordered" {
		t.Errorf("it ended as %+v", e)
	}
	if r := h.results()[0].Effects; len(r) != 1 || r[0].Outcome != contract.EffectDone || r[0].Effect != before[0].Effect {
		t.Errorf("the result names %+v", r)
	}

	h.sleep()
	h.wrap = func(real ports.Log) ports.Log { return &refusing{real} }
	h.wake()
	h.report(h.submit("order again"))
	h.quiet()
	if len(s.sent()) != 1 {
		t.Errorf("a service is asked for what the log does not have: %+v", s.sent())
	}
}

// refusing is a log that takes no intention.
type refusing struct{ ports.Log }

func (l *refusing) Append(ctx context.Context, drafts ...contract.Draft) ([]contract.Event, error) {
	if slices.ContainsFunc(drafts, func(d contract.Draft) bool { return d.Type == "effect.intended" }) {
		return nil, fault.New("", fault.Invalid, "", errors.New("no"))
	}
	return l.Log.Append(ctx, drafts...)
}

// TestWhatADeathInterruptsIsUnknownOnce: whenever the process dies between an intention and its end, the effect ends as unknown,
// once; the model is told, the service is not asked a second time, and what the process had not meant yet may be made.
func TestWhatADeathInterruptsIsUnknownOnce(t *testing.T) {
	for name, c := range map[string]struct {
		at     string
		after  bool
		sent   int // by both calls
		ended  contract.EffectOutcome
		reads  string // what the model is told of its first call
		second string // and of the second
	}{
		"before it is meant": {"effect.intended", false, 1, contract.EffectDone, "It may or may not have happened", "ordered"},
		"when it is meant":   {"effect.intended", true, 0, contract.EffectUnknown, "Unknown: it may have happened outside (shop order", "whether it happened is not known, so it is not made again by itself"},
		"when it was asked":  {"effect.ended", false, 1, contract.EffectUnknown, "Unknown: it may have happened outside (shop order", "whether it happened is not known, so it is not made again by itself"},
		"when it ended":      {"effect.ended", true, 2, contract.EffectDone, "It is done outside (shop order", "ordered"},
	} {
		t.Run(name, func(t *testing.T) {
			h, s := newOutside(t, false, false)
			told := ""
			h.model.director = plan(buys)
			work := steps(orders("c0", "it"), orders("c1", "it"))
			h.model.associate = func(n int, req contract.TurnRequest) []contract.Part {
				told = returnsOf(req)
				return work(n, req)
			}
			run := h.dieAt(c.at, c.after)
			rep := h.report(run)
			h.quiet()
			if n := len(s.sent()); n != c.sent {
				t.Errorf("the service was asked %d times\n%s", n, h.story())
			}
			if !strings.Contains(told, c.reads) || !strings.Contains(h.returns()["c1"], c.second) {
				t.Errorf("the model reads\n%s\nwant %q and %q", told, c.reads, c.second)
			}
			ends := h.ended()
			if len(ends) == 0 || ends[0].Outcome != c.ended || len(ends) != len(h.intended()) {
				t.Errorf("%d intended, ended as %+v", len(h.intended()), ends)
			}
			if unknown := c.ended == contract.EffectUnknown; unknown != strings.Contains(rep.Summary, "Whether this happened outside is not known") {
				t.Errorf("it is reported as %q", rep.Summary)
			}
		})
	}
}

// TestWhatIsUnknownIsNotMadeAgainByItself: not in the same words, spelled otherwise, in the same attempt or in another task, and not
// by naming it; once a person found that it did not happen, it is made when the call says so, and not without.
func TestWhatIsUnknownIsNotMadeAgainByItself(t *testing.T) {
	h, s := newOutside(t, false, false)
	s.take = unknown
	h.model.director = func(n int, req contract.TurnRequest) []contract.Part {
		if n < 2 {
			return parts(use(fmt.Sprint("d", n), "delegate", m{"tasks": []m{{"kind": "agent", "goal": fmt.Sprint("Order it ", n), "tools": []string{"order"}, "verify": m{"profile": "none"}}}}))
		}
		if n == 2 && !strings.Contains(returnsOf(req), "outside: unknown: shop order") {
			t.Errorf("the Director reads %s", returnsOf(req))
		}
		return parts(use("r", "report", m{"status": "done", "summary": "Ordered."}))
	}
	run := ""
	first := func() string { return h.intended()[0].Effect }
	second := false
	h.model.associate = func(n int, req contract.TurnRequest) []contract.Part {
		if strings.Contains(textOf(req), "Order it 1") {
			if n == 0 {
				second = strings.Contains(textOf(req), "What this run has changed outside so far") && strings.Contains(textOf(req), first())
			}
			return steps(orders("x0", "it"))(n, req)
		}
		switch n {
		case 0:
			return parts(orders("c0", "it"))
		case 1:
			return parts(orders("c1", "it"))
		case 2:
			return parts(use("c2", "order", json.RawMessage(`{ "what" : "i\u0074" }`)))
		case 3:
			return parts(use("c3", "order", m{"what": "it", "again": first()}))
		case 4:
			h.resolve(run, first(), contract.FoundNotDone)
			return parts(orders("c4", "it"))
		case 5:
			return parts(use("c5", "order", m{"what": "it", "again": contract.NewID()}))
		case 6:
			return parts(use("c6", "order", m{"what": "it", "again": first()}))
		case 7:
			return parts(use("c7", "order", m{"what": "it", "again": first()}))
		}
		return parts(use("fin", "finish", m{"status": "ok", "summary": "Did what could be done."}))
	}
	h.sleep()
	h.wake()
	run = h.submit("order it")
	h.report(run)
	h.quiet()
	said := h.returns()
	for call, want := range map[string]string{"c0": "Unknown: it may have happened outside", "c1": "is not made again by itself", "c2": "is not made again by itself", "c3": "choir effects resolve",
		"c4": "The user found that the effect", "c5": "The newest call like this one", "c6": "Unknown: it may have happened", "c7": "The newest call like this one", "x0": "is not made again by itself"} {
		if !strings.Contains(said[call], want) {
			t.Errorf("%s returns %q, want %q", call, said[call], want)
		}
	}
	if n := len(s.sent()); n != 2 {
		t.Errorf("it was sent %d times: the first, and the one that a person's word allowed", n)
	}
	if all := h.intended(); len(all) != 2 || all[1].Again != all[0].Effect || all[1].Digest != all[0].Digest {
		t.Errorf("intended %+v", all)
	}
	if strings.Contains(s.sent()[1].Raw, "again") {
		t.Errorf("the service is sent what is the host's: %s", s.sent()[1].Raw)
	}
	if !second {
		t.Error("the second task was not told what the first one may have done")
	}
}

// TestARepeatHasTheSameKey: where the service takes an idempotency key, what is unknown is sent once more when the call names it,
// with the key of the first time whatever the model gives; once it is done, the next one is another with another key.
func TestARepeatHasTheSameKey(t *testing.T) {
	h, s := newOutside(t, true, false)
	s.take = func(ctx context.Context, o order) (tool.Result, error) {
		if len(s.sent()) == 1 {
			return unknown(ctx, o)
		}
		return tool.Result{OK: true, Output: "ordered"}.End(contract.EffectDone), nil
	}
	h.model.director = plan(buys)
	h.model.associate = func(n int, req contract.TurnRequest) []contract.Part {
		switch n {
		case 0:
			return parts(orders("c0", "it"))
		case 1: // another key does not make it another call
			return parts(use("c1", "order", m{"what": "it", "idempotencyKey": "mine"}))
		case 2:
			return parts(use("c2", "order", m{"what": "it", "idempotencyKey": "mine", "again": h.intended()[0].Effect}))
		case 3:
			return parts(orders("c3", "it"))
		case 4:
			return parts(use("c4", "order", m{"what": "other", "idempotencyKey": "my own"}))
		}
		return steps()(n, req)
	}
	h.report(h.submit("order it"))
	h.quiet()
	sent := s.sent()
	if len(sent) != 4 || sent[0].Key == "" || sent[1].Key != sent[0].Key || sent[2].Key == sent[0].Key || sent[2].Key == "" || sent[3].Key != "my own" {
		t.Fatalf("sent %+v\n%q", sent, h.returns())
	}
	if said := h.returns()["c1"]; !strings.Contains(said, sent[0].Key) || !strings.Contains(said, "sent with the same key") {
		t.Errorf("a repeat without a word returns %q", said)
	}
}

// TestWhatIsDoneAndWhatFailedMayBeMadeAgain: by the loop that knows of it at once, by another task of the run only when it says that it
// means to, or where the service says that it does no harm.
func TestWhatIsDoneAndWhatFailedMayBeMadeAgain(t *testing.T) {
	for _, harmless := range []bool{false, true} {
		h, s := newOutside(t, false, harmless)
		s.take = func(_ context.Context, o order) (tool.Result, error) {
			if o.What == "too much" {
				return tool.Failed("no").End(contract.EffectFailed), nil
			}
			return tool.Result{OK: true, Output: "ordered"}.End(contract.EffectDone), nil
		}
		h.model.director = func(n int, _ contract.TurnRequest) []contract.Part {
			if n < 2 {
				return parts(use(fmt.Sprint("d", n), "delegate", m{"tasks": []m{{"kind": "agent", "goal": fmt.Sprint("Order it ", n), "tools": []string{"order"}, "verify": m{"profile": "none"}}}}))
			}
			return parts(use("r", "report", m{"status": "done", "summary": "Ordered."}))
		}
		h.model.associate = func(n int, req contract.TurnRequest) []contract.Part {
			if !strings.Contains(textOf(req), "Order it 1") {
				return steps(orders("c0", "it"), orders("c1", "it"), orders("c2", "too much"), orders("c3", "too much"))(n, req)
			}
			switch n {
			case 0:
				return parts(orders("x0", "it"))
			case 1:
				all := h.intended()
				last := all[len(all)-1]
				for _, e := range all {
					if strings.Contains(e.What, `"it"`) {
						last = e
					}
				}
				return parts(use("x1", "order", m{"what": "it", "again": last.Effect}))
			}
			return steps()(n, req)
		}
		h.report(h.submit("order it"))
		h.quiet()
		want := 5
		if harmless {
			want = 6
		}
		if n := len(s.sent()); n != want {
			t.Errorf("harmless %v: %d were sent\n%q", harmless, n, h.returns())
		}
		if said := h.returns()["x0"]; strings.Contains(said, "This run has done this already") == harmless {
			t.Errorf("harmless %v: another task's repeat returns %q", harmless, said)
		}
	}
}

// TestAFailedRepeatHidesNothing: what was unknown and a person found to have happened is not made again by itself, though a repeat of it
// failed meanwhile.
func TestAFailedRepeatHidesNothing(t *testing.T) {
	h, s := newOutside(t, true, false)
	s.take = func(ctx context.Context, o order) (tool.Result, error) {
		if len(s.sent()) == 1 {
			return unknown(ctx, o)
		}
		return tool.Failed("the shop is closed").End(contract.EffectFailed), nil
	}
	h.model.director = plan(buys)
	run := ""
	h.model.associate = func(n int, req contract.TurnRequest) []contract.Part {
		switch n {
		case 0:
			return parts(orders("c0", "it"))
		case 1:
			return parts(use("c1", "order", m{"what": "it", "again": h.intended()[0].Effect}))
		case 2:
			h.resolve(run, h.intended()[0].Effect, contract.FoundDone)
			return parts(orders("c2", "it"))
		}
		return steps()(n, req)
	}
	h.sleep()
	h.wake()
	run = h.submit("order it")
	h.report(run)
	h.quiet()
	if sent := s.sent(); len(sent) != 2 || sent[1].Key != sent[0].Key {
		t.Errorf("what a person found to have happened was sent again: %+v", sent)
	}
	if said := h.returns()["c2"]; !strings.Contains(said, "has done this already (effect "+h.intended()[0].Effect) {
		t.Errorf("its repeat returns %q", said)
	}
}

// TestAnEffectEndsOnce: however the end of a run and the answer of a service meet, each effect has one end, before the run's report.
func TestAnEffectEndsOnce(t *testing.T) {
	for i := range 12 {
		h, s := newOutside(t, false, false)
		asked, answer := make(chan struct{}), make(chan struct{})
		s.take = func(ctx context.Context, o order) (tool.Result, error) {
			close(asked)
			if i%3 == 0 { // one that answers all the same when its call is cancelled
				<-ctx.Done()
				return tool.Result{OK: true, Output: "ordered"}.End(contract.EffectDone), nil
			}
			select {
			case <-ctx.Done():
				return tool.Result{}, context.Cause(ctx)
			case <-answer:
				return tool.Result{OK: true, Output: "ordered"}.End(contract.EffectDone), nil
			}
		}
		h.model.director = plan(buys)
		h.model.associate = steps(orders("c0", "it"))
		run := h.submit("order it")
		<-asked
		var both sync.WaitGroup
		both.Go(func() {
			if _, err := h.d.Command(t.Context(), contract.Person("u"), run, contract.CommandCancel); err != nil {
				t.Error(err)
			}
		})
		both.Go(func() { close(answer) })
		both.Wait()
		rep := h.report(run)
		h.quiet()
		order, ends := "", 0
		for _, e := range must(h.log.Read(t.Context(), 0, 1000)) {
			switch e.Type {
			case "effect.ended":
				ends++
				order += "e"
			case "run.reported":
				order += "r"
			}
		}
		if ends != 1 || order != "er" {
			t.Fatalf("%d ends, in the order %s", ends, order)
		}
		if i%3 == 0 && h.ended()[0].Outcome != contract.EffectDone {
			t.Errorf("what a service answered to a run that was cancelled meanwhile is %s", h.ended()[0].Outcome)
		}
		if r := h.results(); len(r) != 1 || len(r[0].Effects) != 1 || r[0].Effects[0].Outcome != h.ended()[0].Outcome {
			t.Errorf("%+v of %+v", r, h.ended())
		}
		if said := strings.Contains(rep.Summary, "is not known"); said != (h.ended()[0].Outcome == contract.EffectUnknown) {
			t.Errorf("it ended as %s, and the report says %q", h.ended()[0].Outcome, rep.Summary)
		}
		h.sleep()
	}
}
