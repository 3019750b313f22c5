package state

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"choir.dev/choiros/internal/state/schema"

	sqlite3 "modernc.org/sqlite/lib"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/blob"
	"choir.dev/choiros/internal/crash"
	"choir.dev/choiros/internal/fault"
)

// Log is the log that is projected; *ledger.Log is one.
type Log interface {
	// Read returns up to limit events after a sequence, in order, dense.
	Read(ctx context.Context, after uint64, limit int) ([]contract.Event, error)
	// Follow yields every event after a sequence, in order, until ctx ends.
	Follow(ctx context.Context, after uint64) iter.Seq2[contract.Event, error]
	// Last is the newest sequence of the log.
	Last() uint64
}

// batchSize bounds the events of one transaction.
const batchSize = 500

// Recover makes the state fit the log: if the state goes beyond the log's end, or is of
// another log, it is dropped and everything is replayed. It returns when all that the log
// held at the call is projected. Call it before the log is appended to.
func (s *Store) Recover(ctx context.Context, log Log) error {
	const op = "state.Recover"
	if log.Last() > 0 {
		if err := s.settle(); err != nil {
			return fault.Wrap(op, err)
		}
	}
	last := s.Last()
	foreign := last > log.Last()
	if !foreign && last > 0 {
		events, err := log.Read(ctx, last-1, 1)
		if err != nil {
			return fault.Wrap(op, err)
		}
		if len(events) == 0 || events[0].Sequence != last {
			return fault.New(op, fault.Internal, "Run choir doctor: the log has a hole.", fmt.Errorf("the log ends at %d but has no event %d", log.Last(), last))
		}
		digest := contract.Digest(events[0])
		var same bool
		if err := s.read.QueryRowContext(ctx, "SELECT digest = ? FROM events WHERE seq = ?", digest[:], last).Scan(&same); err != nil {
			return fault.Wrap(op, err)
		}
		foreign = !same
	}
	if foreign {
		s.log.Warn("the state is not of this log; it is dropped and replayed", "path", s.path, "state", last, "log", log.Last())
		s.wmu.Lock()
		err := s.reset(ctx)
		s.wmu.Unlock()
		if err != nil {
			return fault.Wrap(op, err)
		}
	}
	return fault.Wrap(op, s.catchUp(ctx, log, log.Last()))
}

// catchUp applies what the log holds up to a sequence. While one batch is
// written the next is read and decoded.
func (s *Store) catchUp(ctx context.Context, log Log, upTo uint64) error {
	type read struct {
		batch []prepared
		err   error
	}
	ctx, cancel := context.WithCancel(ctx)
	batches := make(chan read)
	at := s.Last()
	go func() {
		defer close(batches)
		for at < upTo {
			events, err := log.Read(ctx, at, int(min(batchSize, upTo-at)))
			if err == nil && len(events) == 0 {
				err = fmt.Errorf("the log ended at %d before %d was reached", at, upTo)
			}
			for len(events) > 0 || err != nil {
				var r read
				if r.err = err; err == nil {
					r.batch, r.err = s.prepareBatch(ctx, events)
				}
				select {
				case batches <- r:
				case <-ctx.Done():
					return
				}
				if r.err != nil {
					return
				}
				events = events[len(r.batch):]
				at = r.batch[len(r.batch)-1].event.Sequence
			}
		}
	}()
	defer func() {
		cancel()
		for range batches { // wait for the reader
		}
	}()
	for r := range batches {
		if r.err != nil {
			return r.err
		}
		if err := s.applyBatch(ctx, r.batch); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// Project applies the log as it grows, until ctx ends (then it returns nil) or
// something fails that is not one event's fault, such as a full disk. One
// projection may run at a time.
func (s *Store) Project(ctx context.Context, log Log) error {
	s.advance(s.Last(), nil) // waiters that an earlier, failed projection turned away may wait again
	err := s.follow(ctx, log)
	if ctx.Err() != nil {
		return nil
	}
	if err == nil {
		err = errors.New("the log ended")
	}
	err = fault.Wrap("state.Project", err)
	s.advance(s.Last(), err)
	return err
}

func (s *Store) follow(ctx context.Context, log Log) error {
	if err := s.catchUp(ctx, log, log.Last()); err != nil {
		return err
	}
	// The reader fills a channel so that a burst becomes one transaction.
	ctx, cancel := context.WithCancel(ctx)
	events, failed := make(chan contract.Event, batchSize), make(chan error, 1)
	after := s.Last()
	go func() {
		defer close(events)
		for e, err := range log.Follow(ctx, after) {
			if err != nil {
				failed <- err
				return
			}
			select {
			case events <- e:
			case <-ctx.Done():
				return
			}
		}
	}()
	defer func() {
		cancel()
		for range events { // wait for the reader
		}
	}()
	batch := make([]contract.Event, 0, batchSize)
	for e := range events {
		batch = append(batch[:0], e)
	drain:
		for len(batch) < batchSize {
			select {
			case next, ok := <-events:
				if !ok {
					break drain
				}
				batch = append(batch, next)
			default:
				break drain
			}
		}
		if err := s.Apply(ctx, batch); err != nil {
			return err
		}
	}
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// batchBytes bounds the data of one transaction. They are held in memory, together with
// those of the next.
const batchBytes = 16 << 20

// Apply projects events that follow each other, in one transaction unless
// their data are large. Those already projected are skipped; at a gap it fails,
// and nothing from there on is applied.
func (s *Store) Apply(ctx context.Context, events []contract.Event) error {
	const op = "state.Apply"
	last := s.Last()
	for len(events) > 0 && events[0].Sequence <= last {
		events = events[1:]
	}
	for len(events) > 0 {
		batch, err := s.prepareBatch(ctx, events)
		if err != nil {
			return fault.Wrap(op, err)
		}
		if err := s.applyBatch(ctx, batch); err != nil {
			return fault.Wrap(op, err)
		}
		events = events[len(batch):]
	}
	return nil
}

// prepareBatch prepares as many of some events, from the first on, as make one
// transaction.
func (s *Store) prepareBatch(ctx context.Context, events []contract.Event) ([]prepared, error) {
	batch, size := make([]prepared, 0, len(events)), 0
	for _, e := range events {
		p, err := s.prepare(ctx, e)
		if err != nil {
			return nil, err
		}
		batch = append(batch, p)
		if size += p.size; size > batchBytes {
			break
		}
	}
	return batch, nil
}

// applyBatch commits what of a batch is not projected yet.
func (s *Store) applyBatch(ctx context.Context, batch []prepared) error {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	last := s.Last()
	for len(batch) > 0 && batch[0].event.Sequence <= last {
		batch = batch[1:]
	}
	for i := range batch {
		if seq := batch[i].event.Sequence; seq != last+uint64(i)+1 {
			return fault.New("", fault.Internal, "Run choir doctor: the log has a hole.", fmt.Errorf("event %d follows %d", seq, last+uint64(i)))
		}
	}
	if len(batch) == 0 {
		return nil
	}
	return s.commit(ctx, batch)
}

// commit projects a batch in one transaction.
func (s *Store) commit(ctx context.Context, batch []prepared) error {
	// The first try is without savepoints: poison is rare, and each savepoint costs as much
	// as an insert. If an event fails, the batch is done again with one savepoint per
	// event, so that only the failed event's changes are undone.
	err := s.transact(ctx, batch, false)
	if isPoison(err) {
		err = s.transact(ctx, batch, true)
	}
	if err != nil {
		return err
	}
	for i := range batch {
		if p := &batch[i]; p.reason != "" {
			s.log.Warn("an event could not be projected and is kept with the reason", "seq", p.event.Sequence, "type", p.event.Type, "reason", p.reason)
		}
	}
	s.advance(batch[len(batch)-1].event.Sequence, nil)
	return nil
}

// prepared is an event with its decoded data, or with why it has none.
type prepared struct {
	event   contract.Event
	payload contract.Payload
	apply   projection // nil: not projected
	digest  [32]byte
	refs    []contract.BlobRef // wherever they stand in it
	needed  []contract.BlobRef // those that have to be kept as blobs
	reason  string             // why it can't be projected
	size    int                // bytes of data
}

// prepare decodes an event's data before the transaction begins. It returns an error only
// if another try may succeed.
func (s *Store) prepare(ctx context.Context, e contract.Event) (prepared, error) {
	p := prepared{event: e, digest: contract.Digest(e)}
	data := []byte(e.Data)
	if e.DataRef != "" {
		p.refs, p.needed = []contract.BlobRef{e.DataRef}, []contract.BlobRef{e.DataRef}
		var err error
		data, err = s.load(ctx, e)
		switch {
		case blob.Gone(err), fault.Is(err, fault.Invalid):
			p.reason = reason(err)
			return p, nil
		case err != nil:
			return p, err
		}
	}
	p.size = len(data)
	p.refs = append(p.refs, contract.Refs(data)...)
	p.needed = append(p.needed, contract.Needed(e.Type, data)...)
	info, ok := contract.Lookup(e.Type)
	if !ok {
		p.reason = "this build does not know the type"
		return p, nil
	}
	if !info.Projected {
		return p, nil
	}
	if p.apply, ok = projections[e.Type]; !ok {
		p.reason = "this build has no projection for the type"
		return p, nil
	}
	var err error
	if p.payload, err = contract.DecodeData(e.Type, data); err != nil {
		p.reason = reason(err)
	}
	return p, nil
}

// load reads the blob that holds an event's data.
func (s *Store) load(ctx context.Context, e contract.Event) ([]byte, error) {
	const op = "state.load"
	if s.blobs == nil {
		return nil, fault.New(op, fault.NotFound, "", errors.New("the data are a blob and no blobs were given"))
	}
	r, size, err := s.blobs.Open(ctx, e.Computer, e.DataRef)
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	defer r.Close() // only read from
	if size > contract.MaxTurn {
		return nil, fault.New(op, fault.Invalid, "", fmt.Errorf("the data are %d bytes long; at most %d are read", size, contract.MaxTurn))
	}
	b, err := io.ReadAll(io.LimitReader(r, contract.MaxTurn+1))
	return b, fault.Wrap(op, err)
}

// poison says that an event can't be projected because of its content.
type poison struct{ reason string }

func (p *poison) Error() string { return p.reason }

func poisoned(format string, args ...any) error { return &poison{fmt.Sprintf(format, args...)} }

// isPoison tells an event's fault from the machine's.
func isPoison(err error) bool {
	var p *poison
	return errors.As(err, &p) ||
		isCode(err, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_RANGE, sqlite3.SQLITE_ERROR)
}

// reason bounds an error's text for the events table.
func reason(err error) string {
	s := err.Error()
	if len(s) > 1000 {
		s = s[:1000]
	}
	return s
}

func (s *Store) transact(ctx context.Context, batch []prepared, savepoints bool) (err error) {
	w := s.write
	if _, err := w.exec(ctx, "BEGIN IMMEDIATE"); err != nil {
		// The driver reports that ctx has ended even for a statement that succeeded.
		return errors.Join(err, schema.Rollback(ctx, w.conn))
	}
	committed := false
	defer func() {
		if !committed { // after a panic too: the connection is used again
			err = errors.Join(err, schema.Rollback(ctx, w.conn))
		}
	}()
	// For a context that can end, the driver starts a goroutine and installs a handler per
	// statement, which costs more than most statements.
	apart := context.WithoutCancel(ctx)
	recorded := 0
	if !savepoints {
		if recorded, err = w.recordMany(apart, batch); err != nil {
			return err
		}
	}
	for i := range batch {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.one(apart, &batch[i], i < recorded, savepoints); err != nil {
			return err
		}
	}
	last := batch[len(batch)-1].event.Sequence
	if _, err := w.exec(apart, "UPDATE meta SET value = ? WHERE key = 'last_seq'", strconv.FormatUint(last, 10)); err != nil {
		return err
	}
	crash.At("state.committing")
	_, err = w.exec(apart, "COMMIT")
	committed = err == nil
	crash.At("state.committed")
	return err
}

// one records an event, unless it is recorded already, and applies its projection.
func (s *Store) one(ctx context.Context, p *prepared, recorded, savepoints bool) error {
	w := s.write
	fresh := recorded
	if !recorded {
		var err error
		if fresh, err = w.record(ctx, p, 0, p.reason); err != nil {
			return err
		}
	}
	// This is also done for an event that can't be projected: a later build may understand
	// it.
	for _, ref := range p.refs {
		need := int64(0)
		if slices.Contains(p.needed, ref) {
			need = int64(p.event.Sequence)
		}
		if err := do(ctx, w, `INSERT INTO blob_refs (ref, seq, needed) VALUES (?, ?, ?)
			ON CONFLICT (ref) DO UPDATE SET needed = excluded.needed WHERE needed = 0 AND excluded.needed <> 0`, string(ref), int64(p.event.Sequence), need); err != nil {
			return err
		}
	}
	if !fresh {
		p.reason = "an earlier event has the same source and id"
		_, err := w.record(ctx, p, 1, p.reason)
		return err
	}
	if p.reason != "" || p.apply == nil {
		return nil
	}
	if !savepoints {
		return p.project(ctx, w)
	}
	if _, err := w.exec(ctx, "SAVEPOINT event"); err != nil {
		return err
	}
	err := p.project(ctx, w)
	if err != nil && !isPoison(err) {
		return err
	}
	if err != nil {
		p.reason = reason(err)
		if _, rerr := w.exec(ctx, "ROLLBACK TO event"); rerr != nil {
			return errors.Join(err, rerr)
		}
		if _, rerr := w.exec(ctx, "UPDATE events SET error = ? WHERE seq = ?", p.reason, int64(p.event.Sequence)); rerr != nil {
			return errors.Join(err, rerr)
		}
	}
	_, err = w.exec(ctx, "RELEASE event")
	return err
}

// project applies the event. A panic is the event's fault: it must not stop
// what comes after it.
func (p *prepared) project(ctx context.Context, w *writer) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = poisoned("its projection panicked: %v", v)
		}
	}()
	return p.apply(ctx, w, p.event, p.payload)
}

const (
	eventInsert = `INSERT INTO events
		(seq, id, source, origin, actor, type, subject, time, epoch, computer, user, run, task, causation, correlation, traceparent, data, dataref, digest, prev, duplicate, error)
		VALUES `
	eventRow = `(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)`
	// An event whose id is taken is left out, and then not counted as inserted.
	eventTaken = ` ON CONFLICT (origin, id) WHERE duplicate = 0 DO NOTHING`

	rowsAtOnce = 16
)

var (
	insertEvent  = eventInsert + eventRow + eventTaken
	insertEvents = eventInsert + strings.Repeat(eventRow+",", rowsAtOnce-1) + eventRow + eventTaken
)

// values appends the values of an event's row to args.
func (p *prepared) values(args []any, duplicate int, reason string) []any {
	e := &p.event
	return append(args, int64(e.Sequence), e.ID, e.Source, contract.Origin(e.Source), string(e.Actor), e.Type, e.Subject, stamp(e.Time), int64(e.Epoch), string(e.Computer),
		e.User, e.Run, e.Task, e.Causation, e.Correlation, e.Traceparent, string(e.Data), string(e.DataRef), p.digest[:], string(e.Prev), duplicate, reason)
}

// record inserts an event's row; false means that its origin and id are taken.
func (w *writer) record(ctx context.Context, p *prepared, duplicate int, reason string) (bool, error) {
	n, err := w.exec(ctx, insertEvent, p.values(nil, duplicate, reason)...)
	return n == 1, err
}

// recordMany inserts the rows of a batch's first events, several with one statement, which
// is most of the work of a replay, and returns how many it has inserted. Projections never
// depend on rows of the events table. An id that is taken makes it fail as poison does;
// event by event it is then found which one it is.
func (w *writer) recordMany(ctx context.Context, batch []prepared) (int, error) {
	var args []any
	done := 0
	for ; len(batch)-done >= rowsAtOnce; done += rowsAtOnce {
		args = args[:0]
		for i := range rowsAtOnce {
			p := &batch[done+i]
			args = p.values(args, 0, p.reason)
		}
		n, err := w.exec(ctx, insertEvents, args...)
		if err != nil {
			return done, err
		}
		if n != rowsAtOnce {
			return done, poisoned("an earlier event has the same source and id")
		}
	}
	return done, nil
}

// stamp writes a time as all tables hold it: RFC 3339 in UTC.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
