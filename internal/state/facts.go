package state

import (
	"context"
	"database/sql"

	"choir.dev/choiros/contract"
)

// Fact is something that a person told the computer to keep.
type Fact struct {
	contract.Fact
	From    []string // the events that it came from; empty when it was said by itself
	Run     string   // whose Director noted it
	Actor   contract.ActorName
	User    string
	Time    string
	Seq     uint64
	Kept    bool   // false: it was forgotten
	Changed uint64 // sequence of the newest event about it
}

// FactFilter selects facts, newest first; Before, when not 0, those remembered before that sequence.
type FactFilter struct {
	Kept   bool   // only those that were not forgotten
	Since  uint64 // only those with an event behind that sequence
	Before uint64
	Limit  int // 0: 100; at most MaxPage
}

const factColumns = `id, text, sources, run, actor, user, time, seq, kept, changed`

func scanFact(r *sql.Rows) (f Fact, err error) {
	var sources string
	if err := r.Scan(&f.ID, &f.Text, &sources, &f.Run, &f.Actor, &f.User, &f.Time, &f.Seq, &f.Kept, &f.Changed); err != nil {
		return f, err
	}
	return f, decode(sources, &f.From)
}

// Facts lists facts, the newest first.
func (s *Store) Facts(ctx context.Context, f FactFilter) ([]Fact, error) {
	query := "SELECT " + factColumns + " FROM facts WHERE seq < ? AND changed > ?"
	if f.Kept {
		query += " AND kept = 1"
	}
	return all(ctx, s, "state.Facts", scanFact, query+" ORDER BY seq DESC LIMIT ?", below(f.Before), int64(f.Since), page(f.Limit))
}

// Fact returns the fact with an id.
func (s *Store) Fact(ctx context.Context, id string) (Fact, error) {
	return one(ctx, s, "state.Fact", "fact "+id, scanFact, "SELECT "+factColumns+" FROM facts WHERE id = ?", id)
}

// FactsChanged returns the sequence of the newest event about facts, 0 if there is none.
func (s *Store) FactsChanged(ctx context.Context) (uint64, error) {
	return one(ctx, s, "state.FactsChanged", "facts", func(r *sql.Rows) (seq uint64, err error) { return seq, r.Scan(&seq) },
		"SELECT COALESCE(MAX(changed), 0) FROM facts")
}

func memoryRemembered(ctx context.Context, w *writer, e contract.Event, p *contract.MemoryRemembered) error {
	sources, err := list(p.From)
	if err != nil {
		return err
	}
	return do(ctx, w, `INSERT INTO facts (id, text, sources, run, actor, user, time, seq, changed) VALUES (?,?,?,?,?,?,?,?,?)`,
		e.ID, p.Text, sources, e.Run, string(e.By().Name()), e.User, stamp(e.Time), int64(e.Sequence), int64(e.Sequence))
}

func memoryForgotten(ctx context.Context, w *writer, e contract.Event, p *contract.MemoryForgotten) error {
	return keepFacts(ctx, w, e, p.Facts, false)
}

func memoryRestored(ctx context.Context, w *writer, e contract.Event, p *contract.MemoryRestored) error {
	return keepFacts(ctx, w, e, p.Facts, true)
}

func keepFacts(ctx context.Context, w *writer, e contract.Event, facts []string, kept bool) error {
	for _, id := range facts {
		if err := must(ctx, w, "there is no such fact", `UPDATE facts SET kept = ?, changed = ? WHERE id = ?`, boolInt(kept), int64(e.Sequence), id); err != nil {
			return err
		}
	}
	return nil
}
