package state

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
)

// MaxPage bounds every list; a caller that wants more asks again.
const MaxPage = 1000

// page bounds a caller's limit; 0 means the default of 100.
func page(limit int) int {
	switch {
	case limit <= 0:
		return 100
	case limit > MaxPage:
		return MaxPage
	}
	return limit
}

// all collects rows. The result is never nil, so that it encodes as [].
func all[T any](ctx context.Context, s *Store, op string, scan func(*sql.Rows) (T, error), query string, args ...any) ([]T, error) {
	if s.asked != nil {
		s.asked(op, query, args)
	}
	rows, err := s.query(ctx, query, args...)
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	defer rows.Close()
	out := []T{}
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, fault.Wrap(op, err)
		}
		out = append(out, v)
	}
	return out, fault.Wrap(op, rows.Err())
}

// one returns the only row; what names it in the error when there is none.
func one[T any](ctx context.Context, s *Store, op, what string, scan func(*sql.Rows) (T, error), query string, args ...any) (T, error) {
	list, err := all(ctx, s, op, scan, query, args...)
	if err == nil && len(list) == 0 {
		err = fault.New(op, fault.NotFound, "", fmt.Errorf("there is no %s", what))
	}
	if err != nil {
		var zero T
		return zero, err
	}
	return list[0], nil
}

// below is the sequence below which a page begins; 0 is for the newest.
func below(sequence uint64) int64 {
	return int64(cmp.Or(sequence, contract.MaxSequence+1))
}

// decode reads a JSON column.
func decode(text string, v any) error {
	if text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), v); err != nil {
		return fmt.Errorf("a JSON column does not decode: %w", err)
	}
	return nil
}

// Event is one row of the events table: the event as logged and, when it could
// not be projected, why.
type Event struct {
	contract.Event
	Error string `json:"error,omitempty"`
}

// EventFilter selects events. Zero fields select everything. They come in order
// or, with Newest, the newest first, of those before Before unless that is 0.
type EventFilter struct {
	After   uint64
	Newest  bool
	Before  uint64
	Limit   int      // 0: 100; at most MaxPage
	Types   []string // exact types
	Run     string
	Task    string
	Subject string
}

const eventColumns = `seq, id, source, actor, type, subject, time, epoch, computer, user, run, task, causation, correlation, traceparent, data, dataref, prev, error`

func scanEvent(rows *sql.Rows) (Event, error) { return scanEventAnd(rows) }

// scanEventAnd scans eventColumns and what follows them.
func scanEventAnd(rows *sql.Rows, more ...any) (Event, error) {
	var e Event
	var at, data string
	err := rows.Scan(append([]any{&e.Sequence, &e.ID, &e.Source, &e.Actor, &e.Type, &e.Subject, &at, &e.Epoch, &e.Computer, &e.User, &e.Run, &e.Task,
		&e.Causation, &e.Correlation, &e.Traceparent, &data, &e.DataRef, &e.Prev, &e.Error}, more...)...)
	if err != nil {
		return e, err
	}
	e.SpecVersion = "1.0"
	if data != "" {
		e.Data = json.RawMessage(data)
	}
	if data != "" || e.DataRef != "" {
		e.DataContentType = "application/json"
	}
	e.Time, err = time.Parse(time.RFC3339Nano, at)
	return e, err
}

// Events returns a page of the log as projected, in order. Its cost depends on what it
// returns and not on the length of the log: see the indexes of the table.
func (s *Store) Events(ctx context.Context, f EventFilter) ([]Event, error) {
	limit := page(f.Limit)
	from, than, order := int64(f.After), ">", ""
	if f.Newest {
		from, than, order = int64(cmp.Or(f.Before, contract.MaxSequence+1)), "<", " DESC"
	}
	about, args := "", []any{from}
	for _, c := range []struct{ column, value string }{{"run", f.Run}, {"task", f.Task}, {"subject", f.Subject}} {
		if c.value != "" { // the second term lets the partial index be used
			about, args = about+" AND "+c.column+" = ? AND "+c.column+" <> ''", append(args, c.value)
		}
	}
	query := "SELECT " + eventColumns + " FROM events WHERE seq " + than + " ?" + about
	switch {
	case len(f.Types) == 0:
	case about != "" || len(f.Types) == 1:
		operand := "type"
		if about != "" {
			operand = "+type" // evaluated on the other term's index, which keeps the order
		}
		query += " AND " + operand + " IN (?" + strings.Repeat(", ?", len(f.Types)-1) + ")"
		for _, t := range f.Types {
			args = append(args, t)
		}
	default:
		// At most so many of each type are read: together they contain the first of all.
		args = nil
		parts := make([]string, len(f.Types))
		for i, t := range f.Types {
			parts[i] = "SELECT * FROM (SELECT seq FROM events WHERE type = ? AND seq " + than + " ? ORDER BY seq" + order + " LIMIT ?)"
			args = append(args, t, from, limit)
		}
		query = "SELECT " + eventColumns + " FROM events WHERE seq IN (" + strings.Join(parts, " UNION ALL ") + ")"
	}
	return all(ctx, s, "state.Events", scanEvent, query+" ORDER BY seq"+order+" LIMIT ?", append(args, limit)...)
}

// Event returns the first event with an id from a contract.Origin.
func (s *Store) Event(ctx context.Context, origin, id string) (Event, error) {
	return one(ctx, s, "state.Event", "event "+id, scanEvent, "SELECT "+eventColumns+" FROM events WHERE origin = ? AND id = ? AND duplicate = 0", origin, id)
}

// Poison returns events that could not be projected, newest first.
func (s *Store) Poison(ctx context.Context, limit int) ([]Event, error) {
	return all(ctx, s, "state.Poison", scanEvent, "SELECT "+eventColumns+" FROM events WHERE error <> '' ORDER BY seq DESC LIMIT ?", page(limit))
}

// Computer is what is known of the computer itself.
type Computer struct {
	ID        contract.CID `json:"id"`
	Name      string       `json:"name"`
	Driver    string       `json:"driver"`
	Isolation string       `json:"isolation"`
	Version   string       `json:"version"`
	Notes     []string     `json:"notes"`
	Epoch     uint64       `json:"epoch"`
	Created   string       `json:"created"`
	Woken     string       `json:"woken"`
	LastSeq   uint64       `json:"last_seq"`
	Poison    int          `json:"poison"` // events that could not be projected
}

// Computer returns the computer's own row; fault.NotFound before
// computer.created is projected.
func (s *Store) Computer(ctx context.Context) (Computer, error) {
	return one(ctx, s, "state.Computer", "computer in this state yet", func(r *sql.Rows) (Computer, error) {
		var c Computer
		var notes string
		err := r.Scan(&c.ID, &c.Name, &c.Driver, &c.Isolation, &c.Version, &notes, &c.Epoch, &c.Created, &c.Woken, &c.LastSeq, &c.Poison)
		return c, errors.Join(err, decode(notes, &c.Notes))
	}, `SELECT id, name, driver, isolation, version, notes, epoch, created, woken,
		(SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'last_seq'), (SELECT count(*) FROM events WHERE error <> '') FROM computer`)
}
