package ledger

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/fault"
)

// Blobs keeps data that are too long for an event.
type Blobs interface {
	Put(ctx context.Context, cid contract.CID, r io.Reader) (contract.BlobRef, int64, error)
	Open(ctx context.Context, cid contract.CID, ref contract.BlobRef) (io.ReadSeekCloser, int64, error)
}

// Index answers questions about the part of the log that is already projected, so that a
// Log need not keep that part in memory. Answers beyond the log's own end are ignored.
type Index interface {
	// LastSeq returns the newest sequence that the index covers.
	LastSeq(ctx context.Context) (uint64, error)
	// ByID finds the event with a contract.Origin and id, with its contract.Digest.
	ByID(ctx context.Context, origin, id string) (seq uint64, digest [sha256.Size]byte, ok bool, err error)
	// LastBySubject returns the sequence of the newest event about subject, 0 when there
	// is none.
	LastBySubject(ctx context.Context, subject string) (uint64, error)
}

// Options configure a Log.
type Options struct {
	CID   contract.CID
	Blobs Blobs            // nil: data beyond contract.MaxInlineData are refused
	Index Index            // nil: Open scans the whole log and keeps its ids in memory
	Now   func() time.Time // nil: time.Now
	// Ensure opens the log's stream, or makes it (Bus.EnsureStream, which keeps a stream's
	// messages in any case). Nil: the server is asked for a stream with one replica.
	Ensure func(context.Context, contract.CID) error
	// Health returns why the store accepts no events now (bus.Health), so that an append
	// does not wait for an answer that will not come. Nil: never asked.
	Health func() error
	// FailedReads returns how many reads the store has failed to do, and why the last one
	// failed (bus.FailedReads); the server answers such reads as if there were no such message.
	// Nil: a message that the server does not find counts as missing.
	FailedReads func() (uint64, error)
	// Full is called when an append finds no space. It returns true if it has made some,
	// and then the same events are tried once more. Nil: never called.
	Full func(ctx context.Context) bool

	// Live is where events are published once they are acknowledged. Nil: nowhere, for a
	// log that is only read or that nobody follows.
	Live Live

	// Head is the path of a file that records, apart from the log, where the log ends.
	// Empty: there is no such file. Open refuses a log that ends before the recorded event
	// or holds another in its place (fault.Damaged).
	Head string
	// Trouble is called when the head could not be written; it is written again with the
	// next event. Nil: the error is dropped.
	Trouble func(error)

	step func(point string) // a test hook that is called at each point where a crash leaves a different state
}

// ErrFenced is in the chain of every append's error once another owner has taken the log
// over. The Log can't be used any more; open a new one.
var ErrFenced = errors.New("another owner has taken this log over")

// ExpectError is why a conditional append was refused. It is in the chain of a
// fault.Conflict.
type ExpectError struct {
	Subject string
	Want    uint64 // what the draft expected
	Last    uint64 // sequence of the newest event about Subject, 0 when there is none
}

func (e *ExpectError) Error() string {
	return fmt.Sprintf("the newest event about %q is %d, not %d", e.Subject, e.Last, e.Want)
}

// Log is a computer's log, owned under one epoch. It may be used by many
// goroutines.
type Log struct {
	conn        *nats.Conn
	cid         contract.CID
	filter      string
	owner       string // random; marks what this Log wrote
	epoch       uint64
	blobs       Blobs
	now         func() time.Time
	health      func() error
	failedReads func() (uint64, error)
	full        func(ctx context.Context) bool
	head        *headFile // nil: none is kept

	publisher *publisher // nil: nobody hears of events live

	queue  chan *request
	ctx    context.Context // ends at Close
	cancel context.CancelFunc
	subs   []*nats.Subscription
	done   chan struct{} // closed when the committer has returned

	committing     sync.Mutex // held by who commits; guards what follows
	tail           *tail
	released       bool
	outcomeUnknown bool // the last publish's outcome is not known
	claimed        bool // an event of this epoch is stored
	try            uint64
	crowded        bool             // the newest group was of several calls
	carried        *request         // the committer's: what the next group begins with
	inbox          string           // acknowledgements arrive under it
	acks           chan *nats.Msg   // room for a whole group
	lost           chan nats.Status // the connection went away, and acknowledgements with it
	check          *time.Ticker     // runs while acknowledgements are waited for
	step           func(point string)

	mu        sync.Mutex
	newest    stored // the newest acknowledged event; sequence and position 0: none
	recent    recent
	bookmarks map[uint64]uint64 // of events read lately: sequence → the position where to look for the next one
	changed   chan struct{}     // closed and renewed when last moves or stopped is set
	stopped   error             // why no event will follow
	yield     time.Time         // until when a claim is waited for
}

// Open reads the end of a computer's log and prepares the next epoch. The claim
// takes effect with the first event appended (computer.created or
// computer.woken by convention): it is stored only if nobody else has claimed
// since, and from then on every other Log gets ErrFenced.
func Open(ctx context.Context, js jetstream.JetStream, opts Options) (*Log, error) {
	const op = "ledger.Open"
	if err := opts.CID.Validate(); err != nil {
		return nil, fault.New(op, fault.Invalid, "", err)
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Health == nil {
		opts.Health = func() error { return nil }
	}
	if opts.FailedReads == nil {
		opts.FailedReads = func() (uint64, error) { return 0, nil }
	}
	if opts.Ensure == nil {
		opts.Ensure = func(ctx context.Context, cid contract.CID) error { return bus.EnsureStream(ctx, js, cid, 1) }
	}
	if opts.Full == nil {
		opts.Full = func(context.Context) bool { return false }
	}
	if opts.step == nil {
		opts.step = func(string) {}
	}
	var token [9]byte
	_, _ = rand.Read(token[:]) // never fails since Go 1.24
	l := &Log{
		conn: js.Conn(), cid: opts.CID, filter: contract.SubjectLogAll(opts.CID),
		owner: hex.EncodeToString(token[:]), blobs: opts.Blobs, now: opts.Now,
		queue: make(chan *request, 64), done: make(chan struct{}),
		tail:   newTail(opts.Index),
		acks:   make(chan *nats.Msg, 4*groupCount),
		recent: recent{followers: map[*follower]struct{}{}}, bookmarks: map[uint64]uint64{}, changed: make(chan struct{}),
		step: opts.step, health: opts.Health, failedReads: opts.FailedReads, full: opts.Full,
		newest: stored{link: contract.FirstLink(opts.CID)},
	}
	if opts.Head != "" {
		head, err := openHead(opts.Head, opts.Trouble)
		if err != nil {
			return nil, fault.Wrap(op, err)
		}
		l.head = head
	}
	if err := opts.Ensure(ctx, l.cid); err != nil {
		if why := l.health(); why != nil {
			err = errors.Join(why, err)
		} else {
			err = unavailable(err)
		}
		return nil, fault.Wrap(op, errors.Join(err, l.head.close()))
	}
	if err := l.load(ctx); err != nil {
		return nil, fault.Wrap(op, errors.Join(err, l.head.close()))
	}
	l.inbox = l.conn.NewRespInbox()
	sub, err := l.conn.ChanSubscribe(l.inbox+".>", l.acks)
	if err != nil {
		return nil, fault.Wrap(op, errors.Join(unavailable(err), l.head.close()))
	}
	claims, err := l.conn.Subscribe(contract.SubjectFence(l.cid), l.heardClaim)
	if err != nil {
		return nil, fault.Wrap(op, errors.Join(unavailable(err), sub.Unsubscribe(), l.head.close()))
	}
	l.subs = []*nats.Subscription{sub, claims}
	l.lost = l.conn.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	l.check = time.NewTicker(time.Hour)
	l.check.Stop()
	l.ctx, l.cancel = context.WithCancel(context.Background())
	if l.head != nil {
		l.head.start()
	}
	if opts.Live != nil {
		l.publisher = newPublisher(opts.Live, l.newest.event.Sequence)
		go l.publishLive()
	}
	go l.run()
	return l, nil
}

// load finds the log's end and takes in what the index does not cover.
func (l *Log) load(ctx context.Context) error {
	message, err := l.lastMessage(ctx)
	if err != nil {
		return err
	}
	var end stored
	found := len(message) > 0
	if found {
		end = message[len(message)-1]
	}
	if l.head != nil {
		if err := l.head.compare(ctx, l, end, found); err != nil {
			return err
		}
	}
	if !found {
		l.epoch = 1
		return nil
	}
	l.epoch = end.event.Epoch + 1
	if l.epoch > contract.MaxSequence {
		return fault.New("", fault.Exhausted, "", errors.New("the log has no epochs left"))
	}
	l.newest = end
	last := end.event.Sequence
	covered := uint64(0)
	if l.tail.index != nil {
		if covered, err = l.tail.index.LastSeq(ctx); err != nil {
			return fault.Wrap("index", err)
		}
		covered = min(covered, last)
	}
	l.tail.covered = covered
	for after := covered; after < last; {
		page, err := l.fetch(ctx, after, last, end.position, maxPage)
		if err != nil {
			return err
		}
		for _, s := range page {
			if err := l.tail.add(s.event, contract.Digest(s.event)); err != nil {
				return err
			}
			l.recent.push(s)
		}
		after = page[len(page)-1].event.Sequence
	}
	return nil
}

// Last returns the sequence of the newest acknowledged event, 0 for none.
func (l *Log) Last() uint64 { return l.end().event.Sequence }

// Epoch returns the ownership generation this Log stamps.
func (l *Log) Epoch() uint64 { return l.epoch }

// CID returns the computer whose log it is.
func (l *Log) CID() contract.CID { return l.cid }

// Close ends the appender after the group it is committing and releases who
// waits. Appends that were not begun fail; it is safe to call twice.
func (l *Log) Close() error {
	l.cancel()
	<-l.done
	l.committing.Lock() // an Append may be committing by itself
	defer l.committing.Unlock()
	if l.released {
		return nil
	}
	l.released = true
	l.publisher.close()
	l.conn.RemoveStatusListener(l.lost)
	var errs []error
	for _, s := range l.subs {
		if err := s.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) && !errors.Is(err, nats.ErrBadSubscription) {
			errs = append(errs, err)
		}
	}
	errs = append(errs, l.head.close())
	return fault.Wrap("ledger.Close", errors.Join(errs...))
}

// advance makes stored events visible to readers, and then to who listens.
func (l *Log) advance(events []stored) {
	l.show(events)
	l.wakePublisher(events)
}

func (l *Log) show(events []stored) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range events {
		l.recent.push(s)
		l.newest = s
	}
	if l.head != nil {
		l.head.set(headOf(l.newest))
	}
	l.wake()
}

// stop marks the log as ended; the first reason counts.
func (l *Log) stop(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped == nil {
		l.stopped = err
		l.wake()
	}
}

func (l *Log) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *Log) end() stored {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.newest
}

func (l *Log) ended() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stopped
}
