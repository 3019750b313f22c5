package state

import (
	"context"
	"database/sql"
	"errors"

	"choir.dev/choiros/contract"
)

func approvalRequested(ctx context.Context, w *writer, e contract.Event, p *contract.ApprovalRequested) error {
	if e.Run != p.Act.Run {
		return poisoned("the act is of run %s but the event of run %q", p.Act.Run, e.Run)
	}
	request, err := js(p.Request)
	if err != nil {
		return err
	}
	return do(ctx, w, `INSERT INTO approvals (id, run, task, attempt, kind, host, port, url, method, sends, again, request, digest, claim, deadline, asked, asked_seq) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)`,
		p.Approval, e.Run, e.Task, p.Attempt, string(p.Act.Kind), p.Act.Host, p.Act.Port, p.Act.URL, p.Act.Method, string(p.Act.Sends), p.Act.Again, request,
		string(p.Digest), p.Claim, p.Deadline, stamp(e.Time), int64(e.Sequence))
}

func approvalAnswered(ctx context.Context, w *writer, e contract.Event, p *contract.ApprovalAnswered) error {
	if e.Kind() == contract.KindSystem && p.Answer != contract.ApprovalDeny {
		return poisoned("the system answered %q; it can only deny", p.Answer)
	}
	return must(ctx, w, "no such approval is open in the run",
		`UPDATE approvals SET answer = ?, answered_by = ?, reason = ?, answered = ?, answered_seq = ? WHERE id = ? AND run = ? AND digest = ? AND answered_seq = 0`,
		string(p.Answer), string(e.Kind()), p.Reason, stamp(e.Time), int64(e.Sequence), p.Approval, e.Run, string(p.Digest))
}

func egressMetered(ctx context.Context, w *writer, e contract.Event, p *contract.EgressMetered) error {
	return do(ctx, w, `INSERT INTO egress_traffic (tunnel, box, host, port, sent, received, ended, run, task, day, time, seq) VALUES (?,?,?,?,?,?,?,?,?,?,?,?)
		ON CONFLICT (tunnel) DO UPDATE SET sent = excluded.sent, received = excluded.received, ended = excluded.ended, time = excluded.time, seq = excluded.seq
		WHERE excluded.sent >= sent AND excluded.received >= received`,
		p.Tunnel, p.Box, p.Host, p.Port, p.Sent, p.Received, boolInt(p.Ended), e.Run, e.Task, e.Time.UTC().Format("2006-01-02"), stamp(e.Time), int64(e.Sequence))
}

// Approval is a request for something beyond what the computer was granted, which waits for
// a person or did. It is open while AnsweredSeq is 0.
type Approval struct {
	ID string `json:"id"`
	contract.Act
	Task        string                  `json:"task"`
	Attempt     int                     `json:"attempt"`
	Request     *contract.RequestShown  `json:"request"`
	Digest      string                  `json:"digest"`
	Claim       string                  `json:"claim"`
	Deadline    string                  `json:"deadline"`
	Answer      contract.ApprovalAnswer `json:"answer"`
	AnsweredBy  contract.ActorKind      `json:"answered_by"`
	Reason      string                  `json:"reason"`
	Asked       string                  `json:"asked"`
	AskedSeq    uint64                  `json:"asked_seq"`
	Answered    string                  `json:"answered"`
	AnsweredSeq uint64                  `json:"answered_seq"`
	Prompt      string                  `json:"prompt"` // of the run
}

// ApprovalFilter selects approvals; Before, when not 0, those asked before that
// sequence. An empty run selects those of every run.
type ApprovalFilter struct {
	ID     string // only this one
	Run    string
	Open   bool // only those
	Before uint64
	Limit  int // 0: 100; at most MaxPage
}

// Approvals lists approvals, newest first.
func (s *Store) Approvals(ctx context.Context, f ApprovalFilter) ([]Approval, error) {
	query, args := `SELECT a.id, a.run, a.task, a.attempt, a.kind, a.host, a.port, a.url, a.method, a.sends, a.again, a.request, a.digest, a.claim, a.deadline, a.answer, a.answered_by, a.reason,
		a.asked, a.asked_seq, a.answered, a.answered_seq, r.prompt FROM approvals a JOIN runs r ON r.id = a.run WHERE a.asked_seq < ?`, []any{below(f.Before)}
	for _, c := range []struct{ column, value string }{{"a.run", f.Run}, {"a.id", f.ID}} {
		if c.value != "" {
			query, args = query+" AND "+c.column+" = ?", append(args, c.value)
		}
	}
	if f.Open {
		query += " AND a.answered_seq = 0"
	}
	return all(ctx, s, "state.Approvals", func(r *sql.Rows) (a Approval, err error) {
		request := ""
		err = r.Scan(&a.ID, &a.Run, &a.Task, &a.Attempt, &a.Kind, &a.Host, &a.Port, &a.URL, &a.Method, &a.Sends, &a.Again, &request, &a.Digest, &a.Claim, &a.Deadline, &a.Answer, &a.AnsweredBy, &a.Reason,
			&a.Asked, &a.AskedSeq, &a.Answered, &a.AnsweredSeq, &a.Prompt)
		return a, errors.Join(err, decode(request, &a.Request))
	}, query+" ORDER BY a.asked_seq DESC LIMIT ?", append(args, page(f.Limit))...)
}

// Traffic is what went through the tunnels to one host, in bytes as seen from
// the boxes.
type Traffic struct {
	Host     string `json:"host"`
	Port     int    `json:"port"`
	Tunnels  int    `json:"tunnels"`
	Sent     int64  `json:"sent"`
	Received int64  `json:"received"`
}

// Traffic sums up a run's tunnels, or all when run is empty, by host and port, those with
// the most bytes first.
func (s *Store) Traffic(ctx context.Context, run string) ([]Traffic, error) {
	query, args := `SELECT host, port, count(*), sum(sent), sum(received) FROM egress_traffic WHERE 1`, []any{}
	if run != "" {
		query, args = query+" AND run = ?", append(args, run)
	}
	return all(ctx, s, "state.Traffic", func(r *sql.Rows) (t Traffic, err error) {
		return t, r.Scan(&t.Host, &t.Port, &t.Tunnels, &t.Sent, &t.Received)
	}, query+" GROUP BY host, port ORDER BY sum(sent) + sum(received) DESC, host, port LIMIT ?", append(args, MaxPage)...)
}
