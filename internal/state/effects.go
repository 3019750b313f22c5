package state

import (
	"context"
	"database/sql"
	"errors"

	"choir.dev/choiros/contract"
)

// Effect is what a call changed outside of the computer, or may have.
type Effect struct {
	contract.EffectIntended
	Run, Task, Time string
	Seq             uint64                   // of its intention
	Changed         uint64                   // of the newest event about it
	Ended           *contract.EffectEnded    // nil while it is under way
	Resolved        *contract.EffectResolved // a person's word on what is unknown
	By              contract.ActorName       // that person's
}

// EffectFilter selects effects, newest first; Before, when not 0, those intended before that sequence. Outcome is what is
// known now, a person's word included: done, failed, unknown, or open.
type EffectFilter struct {
	ID, Run, Outcome string
	Before           uint64
	Limit            int // 0: 100; at most MaxPage
}

// Effects lists effects, the newest first.
func (s *Store) Effects(ctx context.Context, f EffectFilter) ([]Effect, error) {
	query, args := "SELECT run, task, time, seq, changed, intended, ended, resolved, resolved_by FROM effects WHERE seq < ?", []any{below(f.Before)}
	for _, c := range []struct{ column, value string }{{"id", f.ID}, {"run", f.Run}, {"outcome", f.Outcome}} {
		if c.value != "" {
			query, args = query+" AND "+c.column+" = ?", append(args, c.value)
		}
	}
	return all(ctx, s, "state.Effects", func(r *sql.Rows) (e Effect, err error) {
		var intended, ended, resolved string
		if err := r.Scan(&e.Run, &e.Task, &e.Time, &e.Seq, &e.Changed, &intended, &ended, &resolved, &e.By); err != nil {
			return e, err
		}
		return e, errors.Join(decode(intended, &e.EffectIntended), decode(ended, &e.Ended), decode(resolved, &e.Resolved))
	}, query+" ORDER BY seq DESC LIMIT ?", append(args, page(f.Limit))...)
}

func effectIntended(ctx context.Context, w *writer, e contract.Event, p *contract.EffectIntended) error {
	intended, err := js(p)
	if err != nil {
		return err
	}
	return do(ctx, w, `INSERT INTO effects (id, run, task, time, seq, changed, intended) VALUES (?,?,?,?,?,?,?)`, p.Effect, e.Run, e.Task, stamp(e.Time), int64(e.Sequence), int64(e.Sequence), intended)
}

func effectEnded(ctx context.Context, w *writer, e contract.Event, p *contract.EffectEnded) error {
	ended, err := js(p)
	if err != nil {
		return err
	}
	return must(ctx, w, "no such effect is under way", `UPDATE effects SET ended = ?, outcome = ?, changed = ? WHERE id = ? AND ended = 'null'`, ended, string(p.Outcome), int64(e.Sequence), p.Effect)
}

func effectResolved(ctx context.Context, w *writer, e contract.Event, p *contract.EffectResolved) error {
	resolved, err := js(p)
	if err != nil {
		return err
	}
	return must(ctx, w, "no such effect is unknown", `UPDATE effects SET resolved = ?, resolved_by = ?, outcome = ?, changed = ? WHERE id = ? AND outcome = 'unknown'`,
		resolved, string(e.By().Name()), string(p.Found.Outcome()), int64(e.Sequence), p.Effect)
}
