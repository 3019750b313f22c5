package bench

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"choir.dev/choiros/bench/report"
	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/blob"
	"choir.dev/choiros/internal/blob/disk"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/ledger"
	"choir.dev/choiros/internal/state"
)

// records are a computer's log, state and blobs, connected as in the product: the appender
// asks the state about ids.
type records struct {
	bus   *bus.Bus
	log   *ledger.Log
	state *state.Store
	end   context.CancelFunc
	wg    sync.WaitGroup
	fail  error // of the projector
}

// openRecords opens everything and starts no projector; see project.
func openRecords(ctx context.Context, dir string) (_ *records, err error) {
	r := &records{end: func() {}}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	if r.bus, err = bus.Open(ctx, bus.Options{Dir: filepath.Join(dir, "nats")}); err != nil {
		return nil, err
	}
	blobs, err := disk.Open(filepath.Join(dir, "blobs"), blob.Quota{})
	if err != nil {
		return nil, err
	}
	if r.state, err = state.Open(ctx, filepath.Join(dir, "state.sqlite"), state.WithBlobs(blobs)); err != nil {
		return nil, err
	}
	if r.log, err = ledger.Open(ctx, r.bus.JetStream(), ledger.Options{CID: contract.NewCID(), Blobs: blobs, Index: r.state, Live: r.bus, Health: r.bus.Health}); err != nil {
		return nil, err
	}
	return r, nil
}

// project starts the projector, as it runs while a computer is awake.
func (r *records) project(ctx context.Context) {
	ctx, r.end = context.WithCancel(ctx)
	r.wg.Go(func() { r.fail = r.state.Project(ctx, r.log) })
}

func (r *records) Close() error {
	r.end()
	r.wg.Wait()
	err := r.fail
	if r.log != nil {
		err = errors.Join(err, r.log.Close())
	}
	if r.state != nil {
		err = errors.Join(err, r.state.Close())
	}
	if r.bus != nil {
		err = errors.Join(err, r.bus.Close())
	}
	return err
}

func intention() contract.Draft {
	return contract.Draft{Actor: contract.Person(""), Type: "prompt.submitted", Data: contract.PromptSubmitted{Text: strings.Repeat("an intention ", 20)}}
}

// appends alternates with raw publishes of the same bytes to a stream of the same kind, by
// as many callers, so that both meet the same conditions.
func appends(ctx context.Context, e *env) (_ []report.Result, err error) {
	r, err := openRecords(ctx, e.dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	first, err := r.log.Append(ctx, intention())
	if err != nil {
		return nil, err
	}
	body, err := contract.MarshalEvent(first[0])
	if err != nil {
		return nil, err
	}
	other := contract.NewCID()
	if err := bus.EnsureStream(ctx, r.bus.JetStream(), other, 1); err != nil {
		return nil, err
	}
	subject := contract.SubjectLog(other, contract.KindPerson, "prompt.submitted")
	publish := func() error { _, err := r.bus.JetStream().Publish(ctx, subject, body); return err }
	one := func() error { _, err := r.log.Append(ctx, intention()); return err }
	meter := meterSelf()
	defer func() { err = errors.Join(err, meter.Close()) }()
	alone, raw, err := concurrentAppends(e, meter, 1, one, publish)
	if err != nil {
		return nil, err
	}
	many, rawMany, err := concurrentAppends(e, meter, 8, one, publish)
	if err != nil {
		return nil, err
	}
	r.project(ctx)
	projected, rawBeside, err := concurrentAppends(e, meter, 8, one, publish)
	if err != nil {
		return nil, err
	}
	row := func(id, what string, ours, theirs sample, target *report.Target, rawWhat, note string) report.Result {
		out := report.Result{ID: id, What: what, Ours: rate(ours), Raw: rate(theirs), RawWhat: rawWhat, Ratio: over(theirs.p50(), ours.p50()), Target: target, Note: note + fastest(theirs.times, ours.times)}
		_, out.Fsyncs = ours.each(rushEach)
		if _, syncs := theirs.each(rushEach); syncs != nil {
			out.Note += fmt.Sprintf(" Raw: %.2f fsyncs each.", *syncs)
		}
		return out
	}
	publishes := "synchronous publishes with nats.go of the same bytes to a stream of the same kind, by %d at once"
	return []report.Result{
		row("append", "append, one caller", alone, raw, report.AtLeast(report.OfRatio, 0.8, "×"), fmt.Sprintf(publishes, 1), "The state is its index, as always; nothing is projected meanwhile."),
		row("append-8", "append, 8 callers at once", many, rawMany, report.AtLeast(report.OfRatio, 1, "×"), fmt.Sprintf(publishes, 8), ""),
		row("append-8-own", "append, 8 callers, against one", many, alone, report.AtLeast(report.OfRatio, 1.3, "×"), "our own appends, one after the other", ""),
		row("append-8-projected", "append, 8 callers at once, while projecting", projected, rawBeside, nil, fmt.Sprintf(publishes, 8), "The projector writes what is appended to the same disk at the same time; the raw side has nothing to project."),
	}, nil
}

func rate(s sample) *report.Quantity {
	return &report.Quantity{Value: 1 / s.p50().Seconds(), Unit: "/s"}
}

// rushEach is how many events one round appends.
const rushEach = 64

// concurrentAppends appends and publishes alternately, each by so many callers at once, and
// returns how long an event took in each.
func concurrentAppends(e *env, m *meter, callers int, one, publish func() error) (ours, raw sample, err error) {
	together := func(s *sample, f func() error) error {
		var t sample
		err := t.try(m, func() error {
			var g errgroup.Group
			for range callers {
				g.Go(func() error {
					for range rushEach / callers {
						if err := f(); err != nil {
							return err
						}
					}
					return nil
				})
			}
			return g.Wait()
		})
		s.times, s.used = append(s.times, t.times[0]/rushEach), append(s.used, t.used...)
		return err
	}
	for i := range e.rounds(30, 8, 4*time.Second) {
		// The order alternates, so that neither always follows the other.
		a, b, fa, fb := &ours, &raw, one, publish
		if i%2 == 1 {
			a, b, fa, fb = b, a, fb, fa
		}
		if err := errors.Join(together(a, fa), together(b, fb)); err != nil {
			return ours, raw, err
		}
	}
	return ours, raw, nil
}

// kept is a log in memory, so that reading it takes no time.
type kept []contract.Event

func (k kept) Last() uint64 { return uint64(len(k)) }

func (k kept) Read(_ context.Context, after uint64, limit int) ([]contract.Event, error) {
	rest := k[min(after, uint64(len(k))):]
	return rest[:min(limit, len(rest))], nil
}

func (k kept) Follow(ctx context.Context, after uint64) iter.Seq2[contract.Event, error] {
	return func(yield func(contract.Event, error) bool) {
		for _, e := range k[min(after, uint64(len(k))):] {
			if !yield(e, nil) {
				return
			}
		}
		<-ctx.Done()
		yield(contract.Event{}, ctx.Err())
	}
}

// workday makes a log as runs make it, through the appender: tasks with their tool calls,
// files, and windows that move.
func workday(ctx context.Context, dir string, n int) (_ kept, err error) {
	r, err := openRecords(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	var out kept
	add := func(drafts ...contract.Draft) error {
		events, err := r.log.Append(ctx, drafts...)
		out = append(out, events...)
		return err
	}
	host, person := contract.System(), contract.Person("")
	err = add(contract.Draft{Actor: host, Type: "computer.created", Data: &contract.ComputerCreated{Name: "one", Driver: "local"}},
		contract.Draft{Actor: person, Type: "window.opened", Data: &contract.WindowOpened{Window: "w", App: "a", State: contract.WindowNormal}})
	for err == nil && len(out) < n {
		id := contract.NewID()
		run := contract.DeriveID(id, "run")
		task := contract.DeriveID(run, "task:1")
		drafts := []contract.Draft{{ID: id, Actor: person, Type: "prompt.submitted", Data: &contract.PromptSubmitted{Text: "make it blue"}},
			{Actor: whoSays("task.requested"), Run: run, Task: task, Type: "task.requested",
				Data: &contract.TaskRequested{Task: contract.DirectorTask{ID: task, Run: run, Kind: contract.KindAgent, Goal: "g"}.WithDefaults()}}}
		for c := range 20 {
			call := fmt.Sprint("c", c)
			in := func(typ string, p contract.Payload) {
				drafts = append(drafts, contract.Draft{Actor: whoSays(typ), Run: run, Task: task, Type: typ, Data: p})
			}
			in("tool.called", &contract.ToolCalled{Call: call, Name: "bash", Args: json.RawMessage(`{"command":"npm test"}`), Attempt: 1})
			in("tool.returned", &contract.ToolReturned{Call: call, Name: "bash", OK: true, Output: strings.Repeat("ok ", 100), Attempt: 1})
			in("file.written", &contract.FileWritten{Path: fmt.Sprintf("workspace/f%d.go", c), Size: 100, SHA256: contract.NewBlobRef(sha256.Sum256([]byte(call)))})
			in("window.moved", &contract.WindowMoved{Window: "w", Frame: contract.Frame{X: c, W: 100, H: 100}, State: contract.WindowNormal})
		}
		err = add(drafts...)
	}
	return out, err
}

// whoSays returns an actor who may append a type.
func whoSays(typ string) contract.Actor {
	info, _ := contract.Lookup(typ)
	return contract.Actor{Kind: info.By[0]}
}

// rawTables are the tables that the projection of a workday fills.
var rawTables = []string{"events", "runs", "conversations", "messages", "tasks", "tool_calls", "files", "windows"}

type table struct {
	insert string
	rows   [][]any
}

// replay compares the projection of a log with inserting the same rows, into the same
// schema with the same pragmas and batches.
func replay(ctx context.Context, e *env) ([]report.Result, error) {
	log, err := workday(ctx, filepath.Join(e.dir, "log"), e.size(100_000, 100))
	if err != nil {
		return nil, err
	}
	project := func(path string) (took time.Duration, err error) {
		s, err := state.Open(ctx, path)
		if err != nil {
			return 0, err
		}
		at := time.Now()
		err = s.Recover(ctx, log)
		took = time.Since(at)
		return took, errors.Join(err, s.Close())
	}
	model := filepath.Join(e.dir, "model.sqlite")
	if _, err := project(model); err != nil {
		return nil, err
	}
	tables, err := rowsOf(ctx, model)
	if err != nil {
		return nil, err
	}
	var ours, raw times
	for n := range e.rounds(5, 3, 10*time.Second) {
		took, err := project(filepath.Join(e.dir, fmt.Sprint("replay", n)))
		if err != nil {
			return nil, err
		}
		ours = append(ours, took)
		if took, err = insertRaw(ctx, filepath.Join(e.dir, fmt.Sprint("raw", n)), tables); err != nil {
			return nil, err
		}
		raw = append(raw, took)
	}
	speed := func(t times) *report.Quantity {
		return &report.Quantity{Value: float64(len(log)) / t.p50().Seconds(), Unit: "events/s"}
	}
	return []report.Result{{ID: "replay", What: fmt.Sprintf("projection replay of %d events", len(log)), Ours: speed(ours), Raw: speed(raw), RawWhat: "inserting the rows that the replay leaves, with the same schema, pragmas and batches, foreign keys off",
		Ratio: over(raw.p50(), ours.p50()), Target: report.AtLeast(report.OfRatio, 0.6, "×"),
		Note: "The log of runs, windows and files that the appender made. The projection also updates rows, which the raw side need not." + fastest(raw, ours)}}, nil
}

func rowsOf(ctx context.Context, path string) (_ []table, err error) {
	db, err := sql.Open("sqlite", path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var out []table
	for _, name := range rawTables {
		t, err := rowsOfTable(ctx, db, name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out = append(out, t)
	}
	return out, nil
}

func rowsOfTable(ctx context.Context, db *sql.DB, name string) (table, error) {
	rows, err := db.QueryContext(ctx, "SELECT * FROM "+name)
	if err != nil {
		return table{}, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return table{}, err
	}
	t := table{insert: "INSERT INTO " + name + " VALUES (?" + strings.Repeat(",?", len(columns)-1) + ")"}
	for rows.Next() {
		values, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			return table{}, err
		}
		t.rows = append(t.rows, values)
	}
	return t, rows.Err()
}

// insertRaw makes one transaction per 500 events, as the projector does, with a
// proportional share of every other table's rows.
func insertRaw(ctx context.Context, path string, tables []table) (took time.Duration, err error) {
	s, err := state.Open(ctx, path) // for its schema
	if err != nil {
		return 0, err
	}
	if err := s.Close(); err != nil {
		return 0, err
	}
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=synchronous(NORMAL)&_pragma=temp_store(MEMORY)")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	at := time.Now()
	inserts := make([]*sql.Stmt, len(tables))
	for i, t := range tables {
		if inserts[i], err = db.PrepareContext(ctx, t.insert); err != nil {
			return 0, err
		}
		defer inserts[i].Close()
	}
	const batch = 500
	total := len(tables[0].rows)
	share := func(t table, done int) int { return len(t.rows) * min(done, total) / total }
	for done := 0; done < total; done += batch {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return 0, err
		}
		for i, t := range tables {
			insert := tx.StmtContext(ctx, inserts[i])
			for _, row := range t.rows[share(t, done):share(t, done+batch)] {
				if _, err := insert.ExecContext(ctx, row...); err != nil {
					return 0, errors.Join(err, tx.Rollback())
				}
			}
		}
		if err := tx.Commit(); err != nil {
			return 0, err
		}
	}
	return time.Since(at), nil
}
