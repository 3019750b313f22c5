package ledger

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/fault"
)

const (
	healthEvery   = 100 * time.Millisecond
	ackTimeout    = 10 * time.Second // how long a try waits for an acknowledgement
	commitTimeout = 40 * time.Second // how long all tries of a group may take
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

// These refusals mean that the log does not end where this Log thought.
const (
	errWrongLast         = int(jetstream.JSErrCodeStreamWrongLastSequence)
	errWrongLastConstant = 10164
	errWrongLastID       = 10070
)

// commitNow stores a request in its caller's goroutine if nobody else is committing, which
// saves two switches between goroutines. It handles only the usual case: when anything else
// happens, it returns false and leaves the request to the committer.
func (l *Log) commitNow(ctx context.Context, req *request) bool {
	if !l.committing.TryLock() {
		return false
	}
	defer l.committing.Unlock()
	if l.outcomeUnknown || l.crowded || len(l.queue) > 0 || l.yielding() || l.ctx.Err() != nil || l.ended() != nil || l.tail.prune(ctx) != nil {
		return false
	}
	end := l.end()
	p := l.plan(ctx, []*request{req}, end.event.Sequence)
	if len(p.open) == 0 {
		return true
	}
	if err := l.encode(p, end, 0); err != nil {
		req.done <- result{err: err}
		return true
	}
	err := l.publish(ctx, p)
	l.outcomeUnknown, l.crowded = err != nil, len(l.queue) > 0
	if p.broken != nil {
		req.done <- result{err: p.broken}
		return true
	}
	if err != nil {
		return false // the committer finds out what is stored
	}
	return true
}

// refused answers a group of which the server plainly refused to store the first message.
// That may be for one of its requests alone, which is too long for the server, so the others
// are tried without it.
func (l *Log) refused(group []*request, err error) {
	if len(group) == 1 {
		fail(group, refusal(err))
		return
	}
	l.commit(group[:len(group)/2])
	l.commit(group[len(group)/2:])
}

// commit stores a group and answers each of its requests.
//
// Only what the stream holds counts: unless the server's answer to a try is a plain
// acknowledgement, the stream's end is read again, the events there are accepted, and what
// the group still lacks gets new sequences. So a repeated try finds its own events by their
// ids and never stores them twice.
func (l *Log) commit(group []*request) {
	// The log's own context is not used, so that a group that was begun is finished when
	// the log is closed.
	ctx, cancel := awake.WithTimeout(context.WithoutCancel(l.ctx), commitTimeout)
	defer cancel()
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
		if l.outcomeUnknown {
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
		if err := l.encode(p, end, misses); err != nil {
			// The log itself is not broken: other groups may not contain what can't be
			// encoded.
			fail(group, err)
			return
		}
		perr := l.publish(ctx, p)
		group = p.open
		l.outcomeUnknown = perr != nil
		if p.broken != nil {
			fail(group, p.broken)
			return
		}
		if perr == nil {
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
		if refused != nil && !conflict && !grown && p.stored == 0 && refused.Code != 503 && err == nil {
			l.refused(group, perr)
			return
		}
		if sick := l.health(); sick != nil {
			fail(group, fault.New("", fault.CodeOf(sick), fault.HintOf(sick), fmt.Errorf("the outcome is unknown: %w", sick)))
			return
		}
		if grown || p.stored > 0 {
			pause = 0 // there is progress, so the next try need not wait
		}
		if l.ctx.Err() != nil || !awake.Pause(ctx, pause) {
			fail(group, fault.New("", fault.Unavailable, "Try again with the same ids; what is stored is not stored twice.",
				fmt.Errorf("the outcome is unknown: %w", perr)))
			return
		}
		pause = max(pause, firstPause)
	}
}

// broken ends the log and fails the group when err can't be overcome by trying again; it
// reports whether that is so.
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

// refusal gives an error that the server answered its fault code.
func refusal(err error) error {
	if text := err.Error(); strings.Contains(text, "no space left") || strings.Contains(text, "resource") || strings.Contains(text, "quota") {
		return fault.New("", fault.DiskFull, fault.FreeSpace, err)
	}
	return fault.New("", fault.Unavailable, "Look at the log for what the server says about its store.", err)
}

type ack struct {
	Error *apiError `json:"error"`
	Seq   uint64    `json:"seq"`
	Count int       `json:"count"` // how many messages an atomic batch had
}

func decodeAck(m *nats.Msg) (ack, error) {
	if m.Header.Get("Status") == "503" {
		return ack{}, nats.ErrNoResponders
	}
	if a, ok := plainAck(m.Data); ok {
		return a, nil
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

// plainAck parses the usual acknowledgement of a single message, {"stream":"NAME","seq":N},
// without a JSON decoder; decodeAck parses all others.
func plainAck(b []byte) (ack, bool) {
	_, rest, ok := bytes.Cut(b, []byte(`","seq":`))
	digits, whole := bytes.CutSuffix(rest, []byte("}"))
	if !ok || !whole || !bytes.HasPrefix(b, []byte(`{"stream":"`)) || bytes.Count(b, []byte(`"`)) != 6 {
		return ack{}, false
	}
	n, err := strconv.ParseUint(string(digits), 10, 64)
	return ack{Seq: n}, err == nil && n > 0
}

// refresh reads what the stream holds behind the known end and accepts it; grown reports
// whether there was something. Events of another owner mean that this Log is fenced, except
// those that an earlier owner wrote before this one's claim.
func (l *Log) refresh(ctx context.Context) (grown bool, err error) {
	for n := 0; ; n++ {
		page, err := l.next(ctx, l.end().position+1)
		if err != nil || len(page) == 0 {
			return grown, err
		}
		if err := l.takeIn(page); err != nil {
			return grown, err
		}
		if !l.claimed && n%noticeEvery == 0 {
			if err := l.announceClaim(); err != nil {
				return grown, err
			}
		}
		grown = true
	}
}

// takeIn accepts the events of a message that the stream holds behind the known end.
func (l *Log) takeIn(page []stored) error {
	end := l.end()
	for _, s := range page {
		last := end.event.Sequence
		if s.owner != l.owner && (l.claimed || s.event.Epoch >= l.epoch) {
			return fault.New("", fault.InUse, "Open the log again to take it back.",
				fmt.Errorf("%w: epoch %d, while this one is %d", ErrFenced, s.event.Epoch, l.epoch))
		}
		if s.event.Sequence != last+1 {
			return broken("event %d follows %d", s.event.Sequence, last)
		}
		if last > 0 {
			if err := s.follows(end); err != nil {
				return err
			}
		}
		if err := l.tail.add(s.event, contract.Digest(s.event)); err != nil {
			return err
		}
		l.claimed = l.claimed || s.owner == l.owner
		end = s
	}
	l.advance(page)
	return nil
}
