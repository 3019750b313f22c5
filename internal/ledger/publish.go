package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/crash"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
)

const (
	healthEvery   = 100 * time.Millisecond
	ackTimeout    = 10 * time.Second // of one try
	commitTimeout = 40 * time.Second // of all tries
	batchCount    = 48               // from here on one sync for all outweighs what the server spends on a batch
	batchMisses   = 3
	firstPause    = 2 * time.Millisecond
	longestPause  = 500 * time.Millisecond
)

// apiError is JetStream's answer to a refused publish or read.
type apiError struct {
	Code        int    `json:"code"`
	ErrCode     int    `json:"err_code"`
	Description string `json:"description"`
}

func (e *apiError) Error() string {
	return fmt.Sprintf("%s (%d, %d)", e.Description, e.Code, e.ErrCode)
}

// The refusals that tell that the log's end is not where it was thought to be.
const (
	errWrongLast         = int(jetstream.JSErrCodeStreamWrongLastSequence)
	errWrongLastConstant = 10164
	errWrongLastID       = 10070
)

// commitNow stores a request in its caller's goroutine if nobody else is at it,
// which spares two hand-overs. Only the plain course of things happens here: it
// returns false, and leaves the rest to the committer, when anything is odd.
func (l *Log) commitNow(ctx context.Context, req *request) bool {
	if !l.committing.TryLock() {
		return false
	}
	defer l.committing.Unlock()
	if l.doubt || len(l.queue) > 0 || l.yielding() || l.ctx.Err() != nil || l.ended() != nil || l.tail.prune(ctx) != nil {
		return false
	}
	end := l.end()
	p := l.plan(ctx, []*request{req}, end.event.Sequence)
	if len(p.open) == 0 {
		return true
	}
	messages, err := l.encode(p, end, 0)
	if err != nil {
		req.done <- result{err: err}
		return true
	}
	positions, err := l.publish(ctx, p, messages)
	l.doubt = err != nil
	if len(positions) > 0 {
		if err := l.accept(p, messages, positions); err != nil {
			l.stop(err)
			l.settle()
			req.done <- result{err: err}
			return true
		}
	}
	if err != nil {
		return false // the committer looks what is stored
	}
	l.settle()
	answerAll(p)
	return true
}

// commit stores a group and answers each of its requests.
//
// Whatever the server's answer to a try, what counts is what the stream holds:
// unless the answer is a plain acknowledgement, the tail is read again, what is
// there is taken in, and what the group still lacks is stamped anew. So a
// repeated try finds its own events by their ids and never stores them twice.
func (l *Log) commit(group []*request) {
	// Not the log's own context: a group that was begun is brought to its end.
	ctx, cancel := awake.WithTimeout(context.WithoutCancel(l.ctx), commitTimeout)
	defer cancel()
	defer l.settle()
	if err := l.ended(); err != nil {
		fail(group, err)
		return
	}
	if err := l.tail.prune(ctx); err != nil {
		fail(group, err)
		return
	}
	misses := 0
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		if err := l.giveWay(ctx); l.broken(group, err) {
			return
		}
		if l.doubt {
			if _, err := l.refresh(ctx); l.broken(group, err) {
				return
			}
		}
		end := l.end()
		p := l.plan(ctx, group, end.event.Sequence)
		if len(p.open) == 0 {
			return
		}
		group = p.open
		messages, err := l.encode(p, end, misses)
		if err != nil {
			// Another group may do without whatever can't be encoded.
			fail(group, err)
			return
		}
		positions, perr := l.publish(ctx, p, messages)
		l.doubt = perr != nil
		if len(positions) > 0 {
			if err := l.accept(p, messages, positions); err != nil {
				l.stop(err)
				fail(group, err)
				return
			}
		}
		if perr == nil {
			answerAll(p)
			return
		}
		grown, err := l.refresh(ctx)
		if l.broken(group, err) {
			return
		}
		if err != nil {
			perr = errors.Join(perr, err)
		}
		var refused *apiError
		conflict := errors.As(perr, &refused) && (refused.ErrCode == errWrongLast || refused.ErrCode == errWrongLastConstant || refused.ErrCode == errWrongLastID)
		if conflict {
			misses++
		}
		if refused != nil && !conflict && !grown && len(positions) == 0 && refused.Code != 503 && err == nil {
			fail(group, refusal(perr))
			return
		}
		if sick := l.health(); sick != nil {
			fail(group, fault.New("", fault.CodeOf(sick), fault.HintOf(sick), fmt.Errorf("the outcome is unknown: %w", sick)))
			return
		}
		if grown || len(positions) > 0 {
			pause = 0 // it moves
		}
		if l.ctx.Err() != nil || !awake.Pause(ctx, pause) {
			fail(group, fault.New("", fault.Unavailable, "Try again with the same ids; what is stored is not stored twice.",
				fmt.Errorf("the outcome is unknown: %w", perr)))
			return
		}
		pause = max(pause, firstPause)
	}
}

// broken ends the log and fails the group when err is for good.
func (l *Log) broken(group []*request, err error) bool {
	if !fault.Is(err, fault.InUse) && !fault.Is(err, fault.Internal) && !fault.Is(err, fault.Damaged) {
		return false
	}
	l.stop(err)
	fail(group, err)
	return true
}

func fail(group []*request, err error) {
	for _, r := range group {
		r.done <- result{err: err}
	}
}

func answerAll(p *plan) {
	for i, r := range p.open {
		events := make([]contract.Event, len(p.answers[i]))
		for j, a := range p.answers[i] {
			if a.at >= 0 {
				a.event = p.events[a.at]
			}
			events[j] = a.event
		}
		r.done <- result{events: events}
	}
}

// refusal gives the server's plain no its code.
func refusal(err error) error {
	if text := err.Error(); strings.Contains(text, "no space left") || strings.Contains(text, "resource") || strings.Contains(text, "quota") {
		return fault.New("", fault.DiskFull, fault.FreeSpace, err)
	}
	return fault.New("", fault.Unavailable, "Look at the log for what the server says about its store.", err)
}

// encode makes the group's messages, each with the link of the one before it.
// The first carries the fence: it is stored only if the log's newest message is
// still end. A group with a call of several drafts, a large one, or one that
// others got in between too often, is an atomic batch: the server stores all of
// it or nothing, also when it is killed in the middle. In any other each message
// is stored only right behind the one before it, so that none can be stored when
// an earlier one was not.
func (l *Log) encode(p *plan, end stored, misses int) ([]*nats.Msg, error) {
	events, batch := p.events, ""
	if (len(events) >= batchCount || p.several() || (len(events) > 1 && misses >= batchMisses)) && !defence.Off(defence.LogBatch) {
		batch = contract.NewID()
	}
	l.try++
	out := make([]*nats.Msg, len(events))
	link := end.link
	for i := range events {
		events[i].Prev = link
		e := events[i]
		data, err := contract.Stored(e) // validated by prepare
		if err != nil {
			return nil, fault.New("", fault.Invalid, "", err)
		}
		link = contract.LinkOf(data)
		h := nats.Header{ownerHeader: {l.owner}}
		if i == 0 {
			h["Nats-Expected-Last-Subject-Sequence"] = []string{strconv.FormatUint(end.position, 10)}
			h["Nats-Expected-Last-Subject-Sequence-Subject"] = []string{l.filter}
		}
		if batch == "" && len(events) > 1 {
			// Unlike positions, which could come true by accident, an id is of one try.
			id := l.owner + "." + strconv.FormatUint(l.try, 10) + "."
			h["Nats-Msg-Id"] = []string{id + strconv.Itoa(i)}
			if i > 0 {
				h["Nats-Expected-Last-Msg-Id"] = []string{id + strconv.Itoa(i-1)}
			}
		}
		m := &nats.Msg{Subject: contract.SubjectLog(l.cid, e.Role(), e.Type), Header: h, Data: data}
		if batch != "" {
			h["Nats-Batch-Id"] = []string{batch}
			h["Nats-Batch-Sequence"] = []string{strconv.Itoa(i + 1)}
			if i == len(events)-1 {
				h["Nats-Batch-Commit"] = []string{"1"}
			}
		}
		if batch == "" || i == len(events)-1 {
			m.Reply = l.inbox + "." + strconv.FormatUint(l.try, 10) + "." + strconv.Itoa(i)
		}
		out[i] = m
	}
	return out, nil
}

// publish sends a group and waits for its acknowledgements, which the server
// gives once the messages are synced. It returns the stream positions of the
// messages that are stored for certain, from the first on, and why the rest is
// not, or not known to be.
func (l *Log) publish(ctx context.Context, p *plan, messages []*nats.Msg) ([]uint64, error) {
	if err := l.health(); err != nil {
		return nil, err
	}
	for len(l.lost) > 0 { // earlier losses
		<-l.lost
	}
	l.step("stamped")
	l.publishing()
	var asked []string
	for _, m := range messages {
		if err := l.nc.PublishMsg(m); err != nil {
			return nil, err
		}
		if m.Reply != "" {
			asked = append(asked, m.Reply)
		}
	}
	l.step("sent")
	crash.At("ledger.sent")
	p.digest() // while the disk is at work
	check := time.NewTicker(healthEvery)
	defer check.Stop()
	giveUp := awake.Now() + ackTimeout
	var positions []uint64
	var failed error
	for len(asked) > 0 {
		var reply *nats.Msg
		select {
		case reply = <-l.acks:
		case <-l.lost:
			return positions, errors.New("no acknowledgement: the connection was lost")
		case <-check.C:
			if err := l.health(); err != nil {
				return positions, err
			}
			if awake.Now() > giveUp {
				return positions, fmt.Errorf("no acknowledgement: %w", context.DeadlineExceeded)
			}
			continue
		case <-ctx.Done():
			return positions, fmt.Errorf("no acknowledgement: %w", ctx.Err())
		}
		// An answer to an earlier try says nothing about this one.
		if i := slices.Index(asked, reply.Subject); i >= 0 {
			asked = slices.Delete(asked, i, i+1)
		} else {
			continue
		}
		ack, err := decodeAck(reply)
		switch {
		case err != nil:
			if failed == nil {
				failed = err
			}
		case failed != nil:
			// A later message can't be stored when an earlier one is not.
			failed = errors.Join(failed, fmt.Errorf("odd acknowledgement: %.200s", reply.Data))
		case ack.Count > 0:
			if ack.Count != len(messages) {
				return nil, fmt.Errorf("odd acknowledgement: %.200s", reply.Data)
			}
			for i := range messages {
				positions = append(positions, ack.Seq-uint64(len(messages)-1-i))
			}
		default:
			positions = append(positions, ack.Seq)
		}
	}
	l.step("acknowledged")
	crash.At("ledger.acknowledged")
	return positions, failed
}

type ack struct {
	Error *apiError `json:"error"`
	Seq   uint64    `json:"seq"`
	Count int       `json:"count"` // of a batch
}

func decodeAck(m *nats.Msg) (ack, error) {
	if m.Header.Get("Status") == "503" {
		return ack{}, nats.ErrNoResponders
	}
	var a ack
	switch err := json.Unmarshal(m.Data, &a); {
	case err != nil:
		return ack{}, fmt.Errorf("decode acknowledgement: %w", err)
	case a.Error != nil:
		return ack{}, a.Error
	case a.Seq == 0:
		return ack{}, fmt.Errorf("odd acknowledgement: %.200s", m.Data)
	}
	return a, nil
}

// accept takes in what the server has acknowledged.
func (l *Log) accept(p *plan, messages []*nats.Msg, positions []uint64) error {
	fresh := make([]stored, len(positions))
	for i, position := range positions {
		e := p.events[i]
		if err := l.tail.add(e, p.digests[i]); err != nil {
			return err
		}
		fresh[i] = stored{event: e, position: position, link: contract.LinkOf(messages[i].Data), size: len(messages[i].Data), owner: l.owner}
	}
	l.claimed = true
	l.advance(fresh)
	l.step("accepted")
	return nil
}

// refresh reads what the stream holds behind the known end and takes it in;
// grown says that there was something. Events of another owner mean that this
// Log is fenced, except those an older owner wrote before this one's claim.
func (l *Log) refresh(ctx context.Context) (grown bool, err error) {
	for n := 0; ; n++ {
		end := l.end()
		last, position := end.event.Sequence, end.position
		s, found, err := l.next(ctx, position+1)
		if err != nil || !found {
			return grown, err
		}
		if s.owner != l.owner && (l.claimed || s.event.Epoch >= l.epoch) {
			return grown, fault.New("", fault.InUse, "Open the log again to take it back.",
				fmt.Errorf("%w: epoch %d, while this one is %d", ErrFenced, s.event.Epoch, l.epoch))
		}
		if s.event.Sequence != last+1 {
			return grown, broken("event %d follows %d", s.event.Sequence, last)
		}
		if last > 0 {
			if err := s.follows(end); err != nil {
				return grown, err
			}
		}
		if err := l.tail.add(s.event, contract.Digest(s.event)); err != nil {
			return grown, err
		}
		l.claimed = l.claimed || s.owner == l.owner
		l.advance([]stored{s})
		if !l.claimed && n%wishEvery == 0 {
			if err := l.wishIn(); err != nil {
				return grown, err
			}
		}
		grown = true
	}
}
