package fleet

import (
	"context"
	"fmt"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/computer"
	"choir.dev/choiros/internal/control"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
)

// How often idle computers are looked for: a fraction of the time after which they are put
// to sleep, within bounds.
const (
	idleLooks = 4
	idleLeast = 250 * time.Millisecond
	idleMost  = 30 * time.Second
)

// shutWait bounds how long closing a log waits for the server.
const shutWait = 10 * time.Second

// Get implements control.Computers. A computer that is asleep is woken, all who ask
// for it meanwhile wait for the one waking, and it stays awake until ctx has ended.
func (fl *Fleet) Get(ctx context.Context, cid contract.CID) (control.Computer, error) {
	c, err := fl.awake(ctx, cid)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// awake does the same and returns the computer itself.
func (fl *Fleet) awake(ctx context.Context, cid contract.CID) (*computer.Computer, error) {
	const op = "fleet.Get"
	waits, cancel := context.WithTimeout(ctx, wakeWait)
	defer cancel()
	for {
		fl.mu.Lock()
		p := fl.find(cid)
		if p == nil {
			fl.mu.Unlock()
			return nil, noComputer(op, cid)
		}
		if p.state == view.StateAwake {
			c := p.computer
			p.uses++
			fl.mu.Unlock()
			context.AfterFunc(ctx, func() { fl.release(p) })
			return c, nil
		}
		if err := p.err; err != nil && p.state != view.StateWaking {
			name := p.name
			fl.mu.Unlock()
			return nil, fault.New(op, fault.CodeOf(err), fault.HintOf(err), fmt.Errorf("%s does not wake: %s", name, fault.Text(err)))
		}
		if fl.closed.Load() {
			name := p.name
			fl.mu.Unlock()
			return nil, fault.New(op, fault.Unavailable, "Try again in a moment.", fmt.Errorf("%s is asleep, for choir is being stopped", name))
		}
		busy, what := p.busy()
		fl.mu.Unlock()
		if busy == nil {
			fl.begin(p, view.WakeRequest{}, nil)
			continue
		}
		select {
		case <-busy:
		case <-waits.Done():
			return nil, fault.New(op, fault.Unavailable, "Try again in a moment.", fmt.Errorf("%s %s", p.name, what))
		}
	}
}

// busy is closed once a place that is not awake has finished what it is doing; nil: it does
// nothing. fl.mu is held.
func (p *place) busy() (<-chan struct{}, string) {
	switch {
	case p.state == view.StateWaking:
		return p.ended, "is waking"
	case p.closing != nil:
		return p.laid, "is falling asleep"
	case p.apart != nil:
		return p.apart, "is asleep, and its history is being read"
	}
	return nil, ""
}

func (fl *Fleet) release(p *place) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	p.uses--
	p.used = time.Now()
}

// ownSleep puts computers to sleep of which nothing has been asked for a while and that do
// nothing themselves.
func (fl *Fleet) ownSleep(after time.Duration) {
	if after <= 0 {
		return
	}
	fl.own("putting idle computers to sleep", func(ctx context.Context) error {
		tick := time.NewTicker(min(max(after/idleLooks, idleLeast), idleMost))
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
				fl.sleepIdle(ctx, after)
				fl.closeIdleLogs(after)
			}
		}
	})
}

// sleepIdle puts those to sleep that have been idle for so long.
func (fl *Fleet) sleepIdle(ctx context.Context, after time.Duration) {
	fl.mu.Lock()
	idle := map[*place]*computer.Computer{}
	for _, p := range fl.places {
		if p.idle(after) {
			idle[p] = p.computer
		}
	}
	fl.mu.Unlock()
	for p, c := range idle {
		if !c.Idle() {
			fl.mu.Lock()
			p.used = time.Now()
			fl.mu.Unlock()
			continue
		}
		info, err := c.Info(ctx)
		if err != nil {
			fl.log(c).Warn("what is shown of a computer that sleeps is not known, so it stays awake", "error", err)
			continue
		}
		fl.sleep(p, c, info, after)
	}
}

// closeIdleLogs closes the logs of computers that sleep and that nobody has used for so long.
// The server opens all of them when it starts.
func (fl *Fleet) closeIdleLogs(after time.Duration) {
	fl.mu.Lock()
	var open []*place
	for _, p := range fl.places {
		if busy, _ := p.busy(); busy == nil && p.state == view.StateAsleep && !p.logClosed && time.Since(p.used) >= after && !fl.closed.Load() {
			p.apart = make(chan struct{})
			open = append(open, p)
		}
	}
	fl.closing.Add(len(open))
	fl.mu.Unlock()
	for _, p := range open {
		shut := fl.closeLog(p.cid)
		fl.mu.Lock()
		p.logClosed = shut
		close(p.apart)
		p.apart = nil
		fl.mu.Unlock()
		fl.closing.Done()
	}
}

// closeLog makes the server close a log that nobody has open, and says whether it did.
func (fl *Fleet) closeLog(cid contract.CID) bool {
	ctx, cancel := awake.WithTimeout(context.Background(), shutWait)
	defer cancel()
	if err := fl.Bus.CloseLog(ctx, cid); err != nil {
		fl.Logger.Warn("the log of a computer that sleeps stays open", "computer", string(cid), "error", err)
		return false
	}
	return fl.Bus.Files() == nil // a server that is not ours does not say which logs it has open
}

// noteDamageAsleep notes that a sleeping computer was found damaged.
func (fl *Fleet) noteDamageAsleep(p *place, err error) {
	if !fl.refused(p.cid) {
		return // it could not be examined, which says nothing about it
	}
	fl.mu.Lock()
	p.err, p.state = err, view.StateDamaged
	name := p.name
	fl.mu.Unlock()
	fl.Logger.Error("a computer that sleeps is damaged", "computer", string(p.cid), "error", err)
	fl.reportState(p.cid, name, view.StateDamaged, err)
}

// idle says whether nobody has used it for so long. fl.mu is held.
func (p *place) idle(after time.Duration) bool {
	return p.state == view.StateAwake && p.uses == 0 && time.Since(p.used) >= after && time.Since(p.since) >= after
}

// sleep puts one computer to sleep, unless somebody has just asked for it. Callers that
// come meanwhile wait until it is asleep, and wake it.
func (fl *Fleet) sleep(p *place, c *computer.Computer, info view.Computer, after time.Duration) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	if fl.closed.Load() || p.computer != c || !p.idle(after) {
		return
	}
	info.State = view.StateAsleep
	p.computer, p.state, p.err, p.known, p.name, p.created = nil, view.StateAsleep, nil, info, info.Name, info.Created
	p.close(c)
	fl.closing.Go(func() {
		fl.log(c).Info("it is idle, and is put to sleep")
		if fl.closeComputer(c) {
			if err := fl.mark(p.cid); err != nil {
				fl.log(c).Warn("what the data directory has could not be written down", "error", err)
			}
		}
	})
}

// close marks a computer as about to be closed, which lay does. fl.mu is held.
func (p *place) close(c *computer.Computer) { p.closing, p.laid = c, make(chan struct{}) }

// Asleep implements control.Computers.
func (fl *Fleet) Asleep(ctx context.Context, cid contract.CID) (view.Computer, bool, error) {
	fl.mu.Lock()
	p := fl.find(cid)
	if p == nil || p.state != view.StateAsleep {
		fl.mu.Unlock()
		return view.Computer{}, false, nil
	}
	at := *p
	fl.mu.Unlock()
	info, err := fl.show(ctx, at)
	return info, err == nil, err
}
