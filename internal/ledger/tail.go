package ledger

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
)

const (
	// maxTail bounds how many events are kept in memory for an index that falls behind.
	maxTail = 200_000
	// pruneAt is how many entries are kept before the index is asked how far it is, and
	// pruneAgain how many must be added before it is asked again.
	pruneAt    = 1024
	pruneAgain = 256

	// What recent keeps at least, and at most for followers that are not as far.
	recentCount, mostRecentCount = 512, 8192
	recentBytes, mostRecentBytes = 512 << 10, 8 << 20
)

// key identifies an event within a computer's log.
type key struct{ origin, id string }

func keyOf(e contract.Event) key { return key{contract.Origin(e.Source), e.ID} }

type known struct {
	seq    uint64
	digest [sha256.Size]byte
}

// tail answers whether an event is stored already, and which is the newest event about a
// subject. It answers from memory for what the index does not cover, and from the index for
// the rest.
type tail struct {
	index   Index
	covered uint64 // up to this sequence the index answers
	ids     map[key]known
	subject map[string]uint64
	order   []entry // the entries of ids and subject, oldest first
	askAt   int     // at how many entries the index is asked the next time
}

type entry struct {
	seq     uint64
	key     key
	subject string
}

func newTail(index Index) *tail {
	return &tail{index: index, ids: map[key]known{}, subject: map[string]uint64{}, askAt: pruneAt}
}

// add adds a stored event. If its id is there already, the stored log is broken.
func (t *tail) add(e contract.Event, digest [sha256.Size]byte) error {
	k := keyOf(e)
	if old, ok := t.ids[k]; ok {
		return broken("events %d and %d of the log carry the same id %s", old.seq, e.Sequence, e.ID)
	}
	t.ids[k] = known{e.Sequence, digest}
	if e.Subject != "" {
		t.subject[e.Subject] = e.Sequence
	}
	t.order = append(t.order, entry{e.Sequence, k, e.Subject})
	return nil
}

// find looks an event up by its id. A fresh id is not looked up in the index.
func (t *tail) find(ctx context.Context, k key, last uint64, fresh bool) (known, bool, error) {
	if n, ok := t.ids[k]; ok {
		return n, true, nil
	}
	if t.index == nil || t.covered == 0 || fresh {
		return known{}, false, nil
	}
	seq, digest, ok, err := t.index.ByID(ctx, k.origin, k.id)
	if err != nil {
		return known{}, false, fault.Wrap("index", err)
	}
	return known{seq, digest}, ok && seq <= last, nil
}

func (t *tail) newest(ctx context.Context, subject string, last uint64) (uint64, error) {
	if seq, ok := t.subject[subject]; ok {
		return seq, nil
	}
	if t.index == nil || t.covered == 0 || subject == "" {
		return 0, nil
	}
	seq, err := t.index.LastBySubject(ctx, subject)
	if err != nil {
		return 0, fault.Wrap("index", err)
	}
	if seq > last {
		return 0, fault.New("", fault.Internal, "Run choir rebuild.", fmt.Errorf("the index knows event %d, the log ends at %d", seq, last))
	}
	return seq, nil
}

// prune forgets what the index has come to cover, and fails when the index has fallen too
// far behind. An index that covers nothing new is not asked again with each event.
func (t *tail) prune(ctx context.Context) error {
	if t.index == nil || len(t.order) < min(t.askAt, maxTail) {
		return nil
	}
	covered, err := t.index.LastSeq(ctx)
	if err != nil {
		return fault.Wrap("index", err)
	}
	n := 0
	for n < len(t.order) && t.order[n].seq <= covered {
		e := t.order[n]
		delete(t.ids, e.key)
		if t.subject[e.subject] == e.seq {
			delete(t.subject, e.subject)
		}
		t.covered = e.seq
		n++
	}
	if n > 0 {
		t.order = append(t.order[:0:0], t.order[n:]...)
	}
	t.askAt = max(pruneAt, len(t.order)+pruneAgain)
	if len(t.order) >= maxTail {
		return fault.New("", fault.Unavailable, "Wait until the state has caught up with the log.",
			fmt.Errorf("%d events are not projected yet", len(t.order)))
	}
	return nil
}

// stored is an event and the position in the stream of the message that holds it.
type stored struct {
	event    contract.Event
	position uint64
	more     bool          // whether the same message also holds the next event
	link     contract.Link // the link of its stored bytes
	size     int
	owner    string
	data     []byte // the stored bytes while they are still to be published; nil: they are not, or must be encoded again
}

// follows checks that an event may stand behind the one before it: it must carry that
// event's link. Events from before there was a chain carry no link, and none of them may
// follow one that does.
func (s *stored) follows(before stored) error {
	switch {
	case s.event.Prev == "" && before.event.Prev == "" || defence.Off(defence.LogChain):
		return nil
	case s.event.Prev != before.link:
		return broken("event %d does not continue the chain: it follows %s, and event %d is %s", s.event.Sequence, orNone(s.event.Prev), before.event.Sequence, before.link)
	}
	return nil
}

func orNone(l contract.Link) string {
	if l == "" {
		return "nothing"
	}
	return string(l)
}

// recent keeps the newest events in memory, so that followers need not ask the server. Many followers that fell behind what it keeps would
// ask the server for so much that they come no further, and neither does who appends.
type recent struct {
	list      []stored
	bytes     int
	followers map[*follower]struct{}
}

// follower is how far somebody has come who follows the log.
type follower struct{ at uint64 }

// needed is the sequence up to which all followers have come that recent can serve.
func (r *recent) needed() uint64 {
	first, least := r.first(), uint64(math.MaxUint64)
	for f := range r.followers {
		if f.at+1 >= first {
			least = min(least, f.at)
		}
	}
	return least
}

func (r *recent) push(s stored) {
	r.list = append(r.list, s)
	r.bytes += s.size
	drop, needed := 0, uint64(0)
	for len(r.list)-drop > recentCount || (r.bytes > recentBytes && len(r.list)-drop > 1) {
		if needed == 0 {
			needed = r.needed()
		}
		if r.list[drop].event.Sequence > needed && len(r.list)-drop <= mostRecentCount && r.bytes <= mostRecentBytes {
			break
		}
		r.bytes -= r.list[drop].size
		r.list[drop] = stored{}
		drop++
	}
	r.list = r.list[drop:]
}

// first returns the sequence of the oldest event, 0 if there is none.
func (r *recent) first() uint64 {
	if len(r.list) == 0 {
		return 0
	}
	return r.list[0].event.Sequence
}

// forget drops the stored bytes of events up to a sequence.
func (r *recent) forget(upTo uint64) {
	for i := int(min(upTo+1-r.first(), uint64(len(r.list)))) - 1; i >= 0 && r.list[i].data != nil; i-- {
		r.list[i].data = nil
	}
}

// after returns up to limit events behind sequence seq, or false when it does not reach
// back that far.
func (r *recent) after(seq uint64, limit int) ([]stored, bool) {
	if len(r.list) == 0 {
		return nil, false
	}
	first := r.list[0].event.Sequence
	if seq+1 < first {
		return nil, false
	}
	from := int(min(seq+1-first, uint64(len(r.list))))
	return r.list[from:min(from+limit, len(r.list))], true
}
