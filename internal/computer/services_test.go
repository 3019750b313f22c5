package computer

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
)

// failures reads what the log tells of a service.
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

// A service that panics once is told of, starts again, and takes nothing along:
// revisions still reach their files.
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

// What goes on failing puts its computer to sleep, which says why; another one
// of the same machine stays awake.
func TestAComputerFallsAlone(t *testing.T) {
	d, other := open(t), open(t)
	h := &Host{places: map[contract.CID]*place{
		d.cid: {cid: d.cid, c: d.Computer, state: view.StateAwake}, other.cid: {cid: other.cid, c: other.Computer, state: view.StateAwake},
	}, order: []contract.CID{d.cid, other.cid}}
	d.host, other.host = h, h
	d.own("a broken service", func(context.Context) error { return errors.New("broken for good") })
	choirtest.Eventually(t, 30*time.Second, "the computer is put to sleep", func() bool { _, err := h.get(d.cid); return err != nil })
	_, err := h.get(d.cid)
	if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "a broken service failed 10 times in a row: broken for good") {
		t.Errorf("it says %v", err)
	}
	h.falls.Wait()
	if c, err := h.get(other.cid); err != nil || c.ctx.Err() != nil {
		t.Errorf("the other one suffers: %v", err)
	}
	other.create("still awake")
	other.settle()
	// And it can be woken again.
	d.server.Close()
	if err := d.engine.Close(); err != nil {
		t.Fatal(err)
	}
	d.start()
	d.create("awake again")
	d.settle()
}
