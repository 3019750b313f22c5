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

// publish sends a plan's messages and waits for their acknowledgements, which the server
// sends once the messages are synced. Acknowledged events are accepted in the plan's order,
// and requests that wait for them are answered at once. The error says why the rest of the
// plan is not stored, or is not known to be stored.
func (l *Log) publish(ctx context.Context, p *plan) error {
	if err := l.health(); err != nil {
		return err
	}
	for len(l.lost) > 0 { // the connection was lost before this publish
		<-l.lost
	}
	l.step("stamped")
	if err := l.send(p); err != nil {
		return err
	}
	l.step("sent")
	crash.At("ledger.sent")
	p.digest() // while the disk is at work
	l.check.Reset(healthEvery)
	defer l.check.Stop()
	var giveUp time.Duration
	heard := true // whether there was an acknowledgement since the last check
	var failed error
	for len(p.asked) > 0 {
		select {
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

// send publishes the plan's messages.
func (l *Log) send(p *plan) error {
	for _, m := range p.messages {
		if err := l.conn.PublishMsg(m.Msg); err != nil {
			return err
		}
		if m.Reply != "" {
			p.asked = append(p.asked, m.Reply)
		}
	}
	return nil
}

// heard adds the stream positions that an acknowledgement reports as stored: those of the
// first messages that have not been accepted yet. Acknowledgements of earlier tries are
// ignored.
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
	case p.batch == "" && (ack.Count > 0 || reply.Subject != p.messages[p.taken+len(positions)].Reply):
		// The server answers in the order in which it stores, and stores nothing behind a
		// message that it refused.
		return positions, fmt.Errorf("odd acknowledgement: %.200s without an earlier one", reply.Data)
	case p.batch != "":
		for n := range ack.Count {
			positions = append(positions, ack.Seq-uint64(ack.Count-1-n))
		}
		return positions, nil
	}
	return append(positions, ack.Seq), nil
}

// accept records what the server has acknowledged: the positions of the plan's next
// messages.
func (l *Log) accept(p *plan, positions []uint64) error {
	fresh := make([]stored, 0, len(p.events)-p.stored)
	for _, position := range positions {
		for upTo := p.messages[p.taken].upTo; p.stored < upTo; p.stored++ {
			at := p.stored
			if err := l.tail.add(p.events[at], p.digests[at]); err != nil {
				return err
			}
			s := stored{event: p.events[at], position: position, link: p.links[at], size: len(p.lines[at]), owner: l.owner, more: at+1 < upTo}
			if l.publisher != nil {
				s.data = p.lines[at]
			}
			fresh = append(fresh, s)
		}
		p.taken++
	}
	l.claimed = true
	l.advance(fresh)
	l.step("accepted")
	return nil
}
