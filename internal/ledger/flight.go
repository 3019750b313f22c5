package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/crash"
)

// joinFor is how long calls may join what is under way, so that a group ends and
// another owner's claim is looked for.
const joinFor = time.Second

// publish sends a plan's messages and waits for their acknowledgements, which the
// server gives once they are synced. What is acknowledged is taken in, from the
// first on, and who waited for it is answered at once. Meanwhile calls from
// joining are sent behind what is under way, so that the disk never waits for a
// caller, nor a caller for a group. The error is why the rest of the plan is not
// stored, or not known to be.
func (l *Log) publish(ctx context.Context, p *plan, joining <-chan *request) error {
	if err := l.health(); err != nil {
		return err
	}
	for len(l.lost) > 0 { // earlier losses
		<-l.lost
	}
	l.step("stamped")
	if err := l.send(p, 0); err != nil {
		return err
	}
	l.step("sent")
	crash.At("ledger.sent")
	p.digest() // while the disk is at work
	l.check.Reset(healthEvery)
	defer l.check.Stop()
	var until, giveUp time.Duration
	if joining != nil {
		until = awake.Now() + joinFor
	}
	heard := true // since the last look
	var failed error
	for len(p.asked) > 0 {
		open := joining
		if open == nil || failed != nil || len(p.events) >= groupCount || p.size >= groupBytes || len(p.asked)+len(l.queue) >= batchCount ||
			l.ctx.Err() != nil || l.yielding() || awake.Now() > until {
			open = nil
		}
		select {
		case r := <-open:
			if r.whole() || len(p.events)+len(r.items) > groupCount { // the first takes a batch
				l.carried, joining = r, nil
			} else if err := l.join(ctx, p, r); err != nil {
				return err
			}
		case reply := <-l.acks:
			positions, err := p.heard(reply, nil)
			for err == nil && len(l.acks) > 0 {
				positions, err = p.heard(<-l.acks, positions)
			}
			switch {
			case err == nil:
			case failed == nil:
				failed = err
			default: // a later message can't be stored when an earlier one is not
				failed = errors.Join(failed, err)
			}
			if len(positions) == 0 {
				continue
			}
			if failed != nil && err == nil {
				return errors.Join(failed, fmt.Errorf("odd acknowledgement: position %d behind a message that was refused", positions[0]))
			}
			heard = true
			l.step("acknowledged")
			crash.At("ledger.acknowledged")
			if err := l.accept(p, positions); err != nil {
				p.broken = err
				l.stop(err)
				return err
			}
			p.answer()
		case <-l.lost:
			return errors.New("no acknowledgement: the connection was lost")
		case <-l.check.C:
			if err := l.health(); err != nil {
				return err
			}
			switch now := awake.Now(); {
			case heard:
				heard, giveUp = false, now+ackTimeout
			case now > giveUp:
				return fmt.Errorf("no acknowledgement: %w", context.DeadlineExceeded)
			}
		case <-ctx.Done():
			return fmt.Errorf("no acknowledgement: %w", ctx.Err())
		}
	}
	return failed
}

// send publishes the plan's messages from one on.
func (l *Log) send(p *plan, from int) error {
	for _, m := range p.messages[from:] {
		if err := l.conn.PublishMsg(m); err != nil {
			return err
		}
		if m.Reply != "" {
			p.asked = append(p.asked, m.Reply)
		}
	}
	return nil
}

// join sends a call that takes no batch behind what is under way. A call that is refused
// is answered; the error is that it could not be sent.
func (l *Log) join(ctx context.Context, p *plan, r *request) error {
	from := len(p.events)
	answers, undo, err := l.place(ctx, p, r, p.last)
	if err == nil {
		err = l.stamp(p)
	}
	if err != nil {
		undo()
		r.done <- result{err: err}
		return nil
	}
	p.await(r, answers)
	if len(p.events) == from {
		p.answer() // what it asks for may have been stored by now
		return nil
	}
	err = l.send(p, from)
	l.step("joined")
	p.digest()
	return err
}

// heard adds what an answer of the server says is stored: positions of the first
// messages that are not taken in yet. An answer to an earlier try says nothing.
func (p *plan) heard(reply *nats.Msg, positions []uint64) ([]uint64, error) {
	i := slices.Index(p.asked, reply.Subject)
	if i < 0 {
		return positions, nil
	}
	p.asked = slices.Delete(p.asked, i, i+1)
	ack, err := decodeAck(reply)
	switch {
	case err != nil:
		return positions, err
	case p.batch != "" && ack.Count != len(p.messages):
		return positions, fmt.Errorf("odd acknowledgement: %.200s", reply.Data)
	case p.batch == "" && (ack.Count > 0 || reply.Subject != p.messages[p.stored+len(positions)].Reply):
		// The server answers in the order in which it stores, and stores none behind
		// one that it refused.
		return positions, fmt.Errorf("odd acknowledgement: %.200s without an earlier one", reply.Data)
	case p.batch != "":
		for n := range ack.Count {
			positions = append(positions, ack.Seq-uint64(ack.Count-1-n))
		}
		return positions, nil
	}
	return append(positions, ack.Seq), nil
}

// accept takes in what the server has acknowledged: the positions of the plan's
// next events.
func (l *Log) accept(p *plan, positions []uint64) error {
	fresh := make([]stored, len(positions))
	for i, position := range positions {
		at := p.stored + i
		e, data := p.events[at], p.messages[at].Data
		if err := l.tail.add(e, p.digests[at]); err != nil {
			return err
		}
		fresh[i] = stored{event: e, position: position, link: p.links[at], size: len(data), owner: l.owner}
		if l.speaker != nil {
			fresh[i].data = data
		}
	}
	p.stored += len(positions)
	l.claimed = true
	l.advance(fresh)
	l.step("accepted")
	return nil
}
