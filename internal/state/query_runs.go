package state

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/run"
)

// Run is all that followed from one prompt: what the reducer made of its events, and which
// events they are. Usage is what was metered so far. Tasks is only set by the method Run,
// not by Runs.
type Run struct {
	run.Head
	ID     string
	Prompt string
	User   string
	Budget contract.Budget
	// Continues is the run that it goes on from; "" if it begins anew.
	Continues string
	Created   string
	Updated   string
	Seq       uint64
	LastSeq   uint64
	Tasks     []Task
}

const runColumns = `r.id, r.status, r.prompt, r.summary, r.document, r.user, r.reason, r.command, r.objective, r.plan, r.provider, r.model, r.budget,
	r.error, r.verified, r.checkpoint, r.created, r.updated, r.ended, r.stood_ms, r.waits, r.fallback, r.direct, r.continues, r.seq, r.last_seq, coalesce(r.usage ->> '$.tool_calls', 0), coalesce(r.usage ->> '$.wall_ms', 0),
	(SELECT count(*) FROM tool_calls WHERE run = r.id),
	(SELECT coalesce(sum(tokens_in), 0) FROM usage WHERE run = r.id), (SELECT coalesce(sum(tokens_out), 0) FROM usage WHERE run = r.id),
	(SELECT coalesce(sum(cost_usd), 0.0) FROM usage WHERE run = r.id),
	(SELECT coalesce(sum(tokens_cached), 0) FROM usage WHERE run = r.id), (SELECT coalesce(sum(tokens_repeated), 0) FROM usage WHERE run = r.id)`

func scanRun(rows *sql.Rows) (Run, error) {
	var r Run
	var plan, budget, ended, waits string
	var reportedCalls, calls int
	if err := rows.Scan(&r.ID, &r.Status, &r.Prompt, &r.Summary, &r.Document, &r.User, &r.Reason, &r.Command, &r.Objective, &plan, &r.Provider, &r.Model, &budget,
		&r.Error, &r.Verified, &r.Checkpoint, &r.Created, &r.Updated, &ended, &r.StoodMS, &waits, &r.Fallback, &r.Direct, &r.Continues, &r.Seq, &r.LastSeq, &reportedCalls, &r.Usage.WallMS, &calls,
		&r.Usage.TokensIn, &r.Usage.TokensOut, &r.Usage.CostUSD, &r.Usage.TokensCached, &r.Usage.TokensRepeated); err != nil {
		return r, err
	}
	r.Usage.ToolCalls = max(reportedCalls, calls)
	var err error
	r.Ended, err = unstamp(ended)
	return r, errors.Join(err, decode(plan, &r.Plan), decode(budget, &r.Budget), decode(waits, &r.Waits))
}

// RunFilter selects runs, newest first. Before, when set, gives runs whose
// prompt is before that sequence.
type RunFilter struct {
	Open   bool // only runs that have not ended
	Before uint64
	Limit  int
}

// Runs lists runs, newest first, without their tasks.
func (s *Store) Runs(ctx context.Context, f RunFilter) ([]Run, error) {
	query, args := "SELECT "+runColumns+" FROM runs r WHERE 1", []any{}
	if f.Open {
		query += " AND r.status NOT IN ('done', 'failed', 'cancelled')"
	}
	if f.Before > 0 {
		query, args = query+" AND r.seq < ?", append(args, int64(f.Before))
	}
	return all(ctx, s, "state.Runs", scanRun, query+" ORDER BY r.seq DESC LIMIT ?", append(args, page(f.Limit))...)
}

// Run returns one run with its tasks.
func (s *Store) Run(ctx context.Context, id string) (Run, error) {
	r, err := one(ctx, s, "state.Run", "run "+id, scanRun, "SELECT "+runColumns+" FROM runs r WHERE r.id = ?", id)
	if err != nil {
		return r, err
	}
	r.Tasks, err = s.Tasks(ctx, TaskFilter{Run: id, Limit: MaxPage})
	return r, err
}

// Task is a task with the outcome of its last attempt, according to the reducer.
type Task struct {
	run.TaskHead
	ID        string
	Run       string
	Kind      contract.TaskKind
	Goal      string
	Requested string
	Seq       uint64
}

// TaskDetail is a task with all that is recorded of it.
type TaskDetail struct {
	Task
	Request       contract.DirectorTask     `json:"request"`
	Result        *contract.AssociateResult `json:"result,omitempty"`
	Attempts      []Attempt                 `json:"attempts"`
	Verifications []Verification            `json:"verifications"`
	ToolCalls     []ToolCall                `json:"tool_calls"`
}

// Attempt is one try at a task.
type Attempt struct {
	ID          string                    `json:"id"` // task/attempt
	Task        string                    `json:"task"`
	Attempt     int                       `json:"attempt"`
	Box         string                    `json:"box"`
	Fence       string                    `json:"fence"`
	Base        string                    `json:"base"`
	Status      string                    `json:"status"` // a contract.AttemptState, or the result's status
	StartedSeq  uint64                    `json:"started_seq"`
	FinishedSeq uint64                    `json:"finished_seq"`
	Result      *contract.AssociateResult `json:"result,omitempty"`
}

// TaskFilter selects tasks in the order they were requested.
type TaskFilter struct {
	Run   string
	Open  bool // only tasks without a result
	Limit int
}

const taskColumns = `id, run, kind, goal, status, verification, attempt, base, head, summary, requested, started, finished, seq`

func scanTaskInto(rows *sql.Rows, t *Task, more ...any) error {
	var started, finished string
	err := rows.Scan(append([]any{&t.ID, &t.Run, &t.Kind, &t.Goal, &t.Status, &t.Verification, &t.Attempt, &t.Base, &t.Head, &t.Summary, &t.Requested, &started, &finished, &t.Seq}, more...)...)
	if err == nil {
		t.Started, err = unstamp(started)
	}
	if err == nil {
		t.Finished, err = unstamp(finished)
	}
	return err
}

// Tasks lists tasks; with Open and no run, those that recovery must look at.
func (s *Store) Tasks(ctx context.Context, f TaskFilter) ([]Task, error) {
	query, args := "SELECT "+taskColumns+" FROM tasks WHERE 1", []any{}
	if f.Run != "" {
		query, args = query+" AND run = ?", append(args, f.Run)
	}
	if f.Open {
		query += " AND status IN ('requested', 'running')"
	}
	return all(ctx, s, "state.Tasks", func(r *sql.Rows) (t Task, err error) { return t, scanTaskInto(r, &t) }, query+" ORDER BY seq LIMIT ?", append(args, page(f.Limit))...)
}

// Task returns one task with its attempts, verifications and tool calls.
func (s *Store) Task(ctx context.Context, id string) (TaskDetail, error) {
	const op = "state.Task"
	d, err := one(ctx, s, op, "task "+id, func(r *sql.Rows) (TaskDetail, error) {
		var d TaskDetail
		var request, result string
		if err := scanTaskInto(r, &d.Task, &request, &result); err != nil {
			return d, err
		}
		var err error
		d.Result, err = decodeResult(result)
		return d, errors.Join(decode(request, &d.Request), err)
	}, "SELECT "+taskColumns+", task, result FROM tasks WHERE id = ?", id)
	if err != nil {
		return d, err
	}
	if d.Attempts, err = s.Attempts(ctx, id); err != nil {
		return d, err
	}
	if d.Verifications, err = s.Verifications(ctx, id); err != nil {
		return d, err
	}
	d.ToolCalls, err = s.ToolCalls(ctx, ToolCallFilter{Task: id})
	return d, err
}

func decodeResult(text string) (*contract.AssociateResult, error) {
	if text == "" {
		return nil, nil
	}
	r := new(contract.AssociateResult)
	return r, decode(text, r)
}

// Attempts lists a task's attempts in order.
func (s *Store) Attempts(ctx context.Context, task string) ([]Attempt, error) {
	return all(ctx, s, "state.Attempts", func(r *sql.Rows) (Attempt, error) {
		var a Attempt
		var result string
		if err := r.Scan(&a.Task, &a.Attempt, &a.Box, &a.Fence, &a.Base, &a.Status, &a.StartedSeq, &a.FinishedSeq, &result); err != nil {
			return a, err
		}
		a.ID = fmt.Sprintf("%s/%d", a.Task, a.Attempt)
		var err error
		a.Result, err = decodeResult(result)
		return a, err
	}, `SELECT task, attempt, box, fence, base, status, started_seq, finished_seq, result FROM attempts WHERE task = ? ORDER BY attempt`, task)
}

// ToolCall is one use of a tool. Status is called while no return is known.
type ToolCall struct {
	ID          string           `json:"id"`
	Run         string           `json:"run"`
	Task        string           `json:"task"`
	Attempt     int              `json:"attempt"`
	Name        string           `json:"name"`
	Args        json.RawMessage  `json:"args"`
	ReadOnly    bool             `json:"read_only"`
	Status      string           `json:"status"` // called, ok or error
	Output      string           `json:"output"`
	OutputRef   contract.BlobRef `json:"output_ref,omitempty"`
	DurationMS  int64            `json:"duration_ms"`
	CalledSeq   uint64           `json:"called_seq"`
	ReturnedSeq uint64           `json:"returned_seq"`
}

// ToolCallFilter selects the calls of a run or task, in order.
type ToolCallFilter struct{ Run, Task string }

// ToolCalls lists tool calls in order, at most MaxPage.
func (s *Store) ToolCalls(ctx context.Context, f ToolCallFilter) ([]ToolCall, error) {
	query, args := `SELECT call, run, task, attempt, name, args, read_only, status, output, output_ref, duration_ms, called_seq, returned_seq FROM tool_calls WHERE 1`, []any{}
	if f.Run != "" {
		query, args = query+" AND run = ?", append(args, f.Run)
	}
	if f.Task != "" {
		query, args = query+" AND task = ?", append(args, f.Task)
	}
	return all(ctx, s, "state.ToolCalls", func(r *sql.Rows) (ToolCall, error) {
		var c ToolCall
		var raw string
		err := r.Scan(&c.ID, &c.Run, &c.Task, &c.Attempt, &c.Name, &raw, &c.ReadOnly, &c.Status, &c.Output, &c.OutputRef, &c.DurationMS, &c.CalledSeq, &c.ReturnedSeq)
		c.Args = json.RawMessage(raw)
		if raw == "" {
			c.Args = json.RawMessage("null")
		}
		return c, err
	}, query+" ORDER BY called_seq LIMIT ?", append(args, MaxPage)...)
}

// Turn is one recorded model turn of a task.
type Turn struct {
	ID   string `json:"id"` // of the event
	Seq  uint64 `json:"seq"`
	Time string `json:"time"`
	Task string `json:"task"`
	contract.TurnRecorded
}

// Turns returns the recorded turns of a task's attempt (0: of all), in order;
// data that are a blob are read. An agent task resumes from them.
func (s *Store) Turns(ctx context.Context, task string, attempt int) ([]Turn, error) {
	const op = "state.Turns"
	out := []Turn{}
	for after := uint64(0); ; {
		events, err := s.Events(ctx, EventFilter{After: after, Limit: MaxPage, Types: []string{"turn.recorded"}, Task: task})
		if err != nil {
			return nil, err
		}
		for _, e := range events {
			data := []byte(e.Data)
			if e.DataRef != "" {
				if data, err = s.load(ctx, e.Event); err != nil {
					return nil, fault.Wrap(op, err)
				}
			}
			p, err := contract.DecodeData(e.Type, data)
			if err != nil {
				return nil, fault.New(op, fault.Invalid, "", fmt.Errorf("event %d: %w", e.Sequence, err))
			}
			if t, ok := p.(*contract.TurnRecorded); ok && (attempt == 0 || t.Attempt == attempt) {
				out = append(out, Turn{ID: e.ID, Seq: e.Sequence, Time: stamp(e.Time), Task: e.Task, TurnRecorded: *t})
			}
		}
		if len(events) < MaxPage {
			return out, nil
		}
		after = events[len(events)-1].Sequence
	}
}

// Message is something said between the user and the Director.
type Message struct {
	ID      uint64             `json:"id"` // sequence of its event
	Run     string             `json:"run"`
	Role    contract.ActorKind `json:"role"`
	Kind    string             `json:"kind"` // prompt, steer, question, answer or report
	Content string             `json:"content"`
	Time    string             `json:"time"`
}

// Messages lists what was said in a run after a sequence.
func (s *Store) Messages(ctx context.Context, run string, after uint64) ([]Message, error) {
	return all(ctx, s, "state.Messages", func(r *sql.Rows) (m Message, err error) {
		return m, r.Scan(&m.ID, &m.Run, &m.Role, &m.Kind, &m.Content, &m.Time)
	}, `SELECT seq, conversation, role, kind, content, time FROM messages WHERE conversation = ? AND seq > ? ORDER BY seq LIMIT ?`, run, int64(after), MaxPage)
}

// Question is something the Director asked. It is open while AnsweredSeq is 0.
type Question struct {
	ID          string   `json:"id"`
	Run         string   `json:"run"`
	Text        string   `json:"text"`
	Choices     []string `json:"choices"`
	Default     string   `json:"default"`
	Deadline    string   `json:"deadline"`
	Answer      string   `json:"answer"`
	ByDefault   bool     `json:"by_default"`
	AskedSeq    uint64   `json:"asked_seq"`
	AnsweredSeq uint64   `json:"answered_seq"`
}

// Questions lists a run's questions, or those of every run when run is empty;
// only open ones when open.
func (s *Store) Questions(ctx context.Context, run string, open bool) ([]Question, error) {
	query, args := `SELECT id, run, text, choices, "default", deadline, answer, by_default, asked_seq, answered_seq FROM questions WHERE 1`, []any{}
	if run != "" {
		query, args = query+" AND run = ?", append(args, run)
	}
	if open {
		query += " AND answered_seq = 0"
	}
	return all(ctx, s, "state.Questions", func(r *sql.Rows) (Question, error) {
		var q Question
		var choices string
		err := r.Scan(&q.ID, &q.Run, &q.Text, &choices, &q.Default, &q.Deadline, &q.Answer, &q.ByDefault, &q.AskedSeq, &q.AnsweredSeq)
		return q, errors.Join(err, decode(choices, &q.Choices))
	}, query+" ORDER BY asked_seq LIMIT ?", append(args, MaxPage)...)
}

// Verification is one recorded check of a tree.
type Verification struct {
	ID      uint64 `json:"id"` // sequence of its event
	Run     string `json:"run"`
	Task    string `json:"task"`
	Attempt int    `json:"attempt"`
	Time    string `json:"time"`
	contract.Verification
}

// Verifications lists a task's verifications in order.
func (s *Store) Verifications(ctx context.Context, task string) ([]Verification, error) {
	return all(ctx, s, "state.Verifications", func(r *sql.Rows) (Verification, error) {
		var v Verification
		var checks string
		err := r.Scan(&v.ID, &v.Run, &v.Task, &v.Attempt, &v.Time, &v.Profile, &v.Status, &v.Tree, &v.Reason, &checks)
		return v, errors.Join(err, decode(checks, &v.Checks))
	}, `SELECT seq, run, task, attempt, time, profile, status, tree, reason, checks FROM verifications WHERE task = ? ORDER BY seq LIMIT ?`, task, MaxPage)
}

// KeptTree is the tree of an attempt that was not published, as its result names it. Its
// ref may have been removed since.
type KeptTree struct {
	contract.KeptTree
	Run     string
	Task    string
	Attempt int
	Seq     uint64 // of the result
}

// KeptTree returns the kept tree with a commit id.
func (s *Store) KeptTree(ctx context.Context, commit string) (KeptTree, error) {
	return one(ctx, s, "state.KeptTree", "kept tree "+commit, func(r *sql.Rows) (k KeptTree, err error) {
		return k, r.Scan(&k.Commit, &k.Base, &k.Paths, &k.Run, &k.Task, &k.Attempt, &k.Seq)
	}, `SELECT commit_id, base, paths, run, task, attempt, seq FROM kept_trees WHERE commit_id = ?`, commit)
}
