package computer

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/supervise"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
)

// fates returns the log's events about what became of a part, by type.
func (d *desk) fates(part string) map[string][]contract.Payload {
	d.t.Helper()
	events, err := d.log.Read(d.t.Context(), 0, 500)
	if err != nil {
		d.t.Fatal(err)
	}
	out := map[string][]contract.Payload{}
	for _, e := range events {
		p, err := d.log.Payload(d.t.Context(), e)
		if err != nil {
			d.t.Fatal(err)
		}
		of := ""
		switch p := p.(type) {
		case *contract.ServiceFailed:
			of = p.Service
		case *contract.ServiceGaveUp:
			of = p.Service
		case *contract.ServiceRestarted:
			of = p.Service
		}
		if of == part {
			out[e.Type] = append(out[e.Type], p)
		}
	}
	return out
}

// TestAServiceThatPanicsStartsAgain shows that when a part panics once, the failure is recorded,
// the part restarts, and revisions still reach their files.
func TestAServiceThatPanicsStartsAgain(t *testing.T) {
	d := open(t)
	var runs atomic.Int32
	d.parts.Own("a frail part", func(ctx context.Context) error {
		if runs.Add(1) == 1 {
			panic("boom")
		}
		<-ctx.Done()
		return nil
	})
	choirtest.Eventually(t, 20*time.Second, "the part runs again", func() bool { return runs.Load() == 2 })
	choirtest.Eventually(t, 20*time.Second, "its failure is an event", func() bool { return len(d.fates("a frail part")["service.failed"]) == 1 })
	if f := d.fates("a frail part")["service.failed"][0].(*contract.ServiceFailed); f.Error != "panic: boom" || f.InRow != 1 || !f.Again {
		t.Errorf("the event says %+v", f)
	}
	d.create("written after the panic")
	d.settle()
}

// TestWhatGoesOnFailingIsToldOfItsComputer shows that the fleet is told once that a part of one
// computer keeps failing, that its log has two events of that storm and no more, and that another
// computer of the same machine is not affected.
func TestWhatGoesOnFailingIsToldOfItsComputer(t *testing.T) {
	d, other := open(t), open(t)
	type fall struct {
		c   *Computer
		err error
	}
	falls := make(chan fall, 10)
	m := &Machine{PartsFailed: func(c *Computer, err error) { falls <- fall{c, err} }}
	d.machine, other.machine = m, m
	d.parts.Own("a broken part", func(context.Context) error { return errors.New("broken for good") })
	got := <-falls
	if got.c != d.Computer || !strings.Contains(got.err.Error(), "a broken part failed 8 times within 10m0s: broken for good") {
		t.Errorf("of %s it is told: %v", got.c.cid, got.err)
	}
	fates := d.fates("a broken part")
	if len(fates) != 2 || len(fates["service.failed"]) != 1 || len(fates["service.gave_up"]) != 1 {
		t.Fatalf("the log says %+v", fates)
	}
	if g := fates["service.gave_up"][0].(*contract.ServiceGaveUp); !g.Sleeps || g.Failures != 8 || g.Error != "broken for good" {
		t.Errorf("the event says %+v", g)
	}
	other.create("still awake")
	other.settle()
	if len(falls) > 0 || other.ctx.Err() != nil {
		t.Errorf("the other one suffers: %v", other.ctx.Err())
	}
}

// TestAComputerGoesOnWithoutAnOptionalPart shows that a part that a computer can do without is given
// up alone: people are told, the computer stays as it is, and the part starts again when somebody
// asks for that.
func TestAComputerGoesOnWithoutAnOptionalPart(t *testing.T) {
	d := open(t)
	if err := d.note(t.Context(), "computer.created", contract.ComputerCreated{Name: "One", Driver: "local"}); err != nil {
		t.Fatal(err)
	}
	// Its health tells its name, which the projection has from that event.
	if err := d.state.CaughtUp(t.Context(), d.log); err != nil {
		t.Fatal(err)
	}
	d.machine = &Machine{PartsFailed: func(_ *Computer, err error) { t.Errorf("the computer falls: %v", err) }}
	var whole atomic.Bool
	d.parts.Add(supervise.Part{Name: "a luxury", Optional: true, Limit: 3, Run: func(ctx context.Context) error {
		if !whole.Load() {
			return errors.New("not today")
		}
		<-ctx.Done()
		return nil
	}})
	is := func(s view.PartState) func() bool {
		return func() bool {
			h, err := d.Health(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return h.Parts[len(h.Parts)-1].State == s && h.Well() == (s != view.PartFailed)
		}
	}
	choirtest.Eventually(t, 20*time.Second, "it is given up", is(view.PartFailed))
	if notes := d.parts.Notes(); len(notes) != 1 || !strings.Contains(notes[0], "a luxury failed too often") || !strings.Contains(notes[0], "not today") {
		t.Errorf("people are told %q", notes)
	}
	choirtest.Eventually(t, 20*time.Second, "that is an event", func() bool { return len(d.fates("a luxury")["service.gave_up"]) == 1 })
	d.create("written without it")
	d.settle()
	whole.Store(true)
	d.Again()
	choirtest.Eventually(t, 20*time.Second, "it runs again", is(view.PartRunning))
}
