package computer

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/test/choirtest"
)

// failures returns the log's events about failures of a service.
func (d *desk) failures(service string) []contract.ServiceFailed {
	d.t.Helper()
	events, err := d.log.Read(d.t.Context(), 0, 500)
	if err != nil {
		d.t.Fatal(err)
	}
	var out []contract.ServiceFailed
	for _, e := range events {
		p, err := d.log.Payload(d.t.Context(), e)
		if err != nil {
			d.t.Fatal(err)
		}
		if f, ok := p.(*contract.ServiceFailed); ok && f.Service == service {
			out = append(out, *f)
		}
	}
	return out
}

// TestAServiceThatPanicsStartsAgain shows that when a service panics once, the failure is recorded,
// the service restarts, and revisions still reach their files.
func TestAServiceThatPanicsStartsAgain(t *testing.T) {
	d := open(t)
	var runs atomic.Int32
	d.own("a frail service", func(ctx context.Context) error {
		if runs.Add(1) == 1 {
			panic("boom")
		}
		<-ctx.Done()
		return nil
	})
	choirtest.Eventually(t, 20*time.Second, "the service runs again", func() bool { return runs.Load() == 2 })
	choirtest.Eventually(t, 20*time.Second, "its failure is an event", func() bool { return len(d.failures("a frail service")) == 1 })
	if f := d.failures("a frail service")[0]; f.Error != "panic: boom" || f.InRow != 1 || !f.Again {
		t.Errorf("the event says %+v", f)
	}
	if got := d.troubles(); len(got) != 1 || !strings.Contains(got[0], "a frail service has failed 1 times in a row") {
		t.Errorf("the computer tells %q", got)
	}
	d.create("written after the panic")
	d.settle()
}

// TestWhatGoesOnFailingIsToldOfItsComputer shows that the fleet is told once that a service of one
// computer keeps failing, and that another computer of the same machine is not affected.
func TestWhatGoesOnFailingIsToldOfItsComputer(t *testing.T) {
	d, other := open(t), open(t)
	type fall struct {
		c   *Computer
		err error
	}
	falls := make(chan fall, 10)
	m := &Machine{ServicesFailed: func(c *Computer, err error) { falls <- fall{c, err} }}
	d.machine, other.machine = m, m
	d.own("a broken service", func(context.Context) error { return errors.New("broken for good") })
	got := <-falls
	if got.c != d.Computer || !strings.Contains(got.err.Error(), "a broken service failed 10 times in a row: broken for good") {
		t.Errorf("of %s it is told: %v", got.c.cid, got.err)
	}
	other.create("still awake")
	other.settle()
	if len(falls) > 0 || other.ctx.Err() != nil {
		t.Errorf("the other one suffers: %v", other.ctx.Err())
	}
}
