package state_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/state"
)

const benchEvents = 4000

// benchLog is a log as runs make it: tasks with their tool calls, files, and windows that move.
func benchLog(b *testing.B) *memLog {
	l := newLog()
	l.say(b, "computer.created", &contract.ComputerCreated{Name: "one", Driver: "local"})
	l.say(b, "window.opened", &contract.WindowOpened{Window: "w", App: "a", State: contract.WindowNormal})
	for len(l.events) < benchEvents {
		p := l.say(b, "prompt.submitted", &contract.PromptSubmitted{Text: "make it blue"})
		run := contract.DeriveID(p.ID, "run")
		task := contract.DeriveID(run, "task:1")
		r, k := inRun(run), inTask(task)
		l.say(b, "task.requested", &contract.TaskRequested{Task: contract.DirectorTask{ID: task, Run: run, Kind: contract.KindAgent, Goal: "g"}.WithDefaults()}, r, k)
		for c := range 20 {
			call := fmt.Sprint("c", c)
			l.say(b, "tool.called", &contract.ToolCalled{Call: call, Name: "bash", Args: json.RawMessage(`{"command":"npm test"}`), Attempt: 1}, r, k)
			l.say(b, "tool.returned", &contract.ToolReturned{Call: call, Name: "bash", OK: true, Output: strings.Repeat("ok ", 100), Attempt: 1}, r, k)
			l.say(b, "file.written", &contract.FileWritten{Path: fmt.Sprintf("workspace/f%d.go", c), Size: 100, SHA256: blobRef(call)})
			l.say(b, "window.moved", &contract.WindowMoved{Window: "w", Frame: contract.Frame{X: c, W: 100, H: 100}, State: contract.WindowNormal})
		}
	}
	return l
}

// rawTables are the tables of the raw side of the comparison: it inserts every row that the
// projection wrote, in batches of the same size.
var rawTables = []string{"events", "runs", "conversations", "messages", "tasks", "tool_calls", "files", "windows"}

type rawTable struct {
	insert string
	rows   [][]any
}

func rawRows(b *testing.B, path string) []rawTable {
	db, err := sql.Open("sqlite", path)
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	var out []rawTable
	for _, t := range rawTables {
		rows, err := db.Query("SELECT * FROM " + t)
		if err != nil {
			b.Fatal(err)
		}
		columns, err := rows.Columns()
		if err != nil {
			b.Fatal(err)
		}
		raw := rawTable{insert: "INSERT INTO " + t + " VALUES (?" + strings.Repeat(",?", len(columns)-1) + ")"}
		for rows.Next() {
			vals, ptrs := make([]any, len(columns)), make([]any, len(columns))
			for i := range vals {
				ptrs[i] = &vals[i]
			}
			if err := rows.Scan(ptrs...); err != nil {
				b.Fatal(err)
			}
			raw.rows = append(raw.rows, vals)
		}
		if err := rows.Err(); err != nil {
			b.Fatal(err)
		}
		out = append(out, raw)
	}
	return out
}

// BenchmarkReplay compares the replay of a log with raw inserts of the resulting rows, into the
// same schema with the same pragmas and batches. The projection also updates rows (a tool call's
// return, a window's frame), which the raw side need not do.
func BenchmarkReplay(b *testing.B) {
	l := benchLog(b)
	ctx := context.Background()
	dir := b.TempDir()
	model := filepath.Join(dir, "model.sqlite")
	s := mustOpen(b, model)
	project(b, s, l)
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	tables := rawRows(b, model)
	var replay, raw time.Duration
	n := 0
	for b.Loop() {
		n++
		s := mustOpen(b, filepath.Join(dir, fmt.Sprint("replay", n)))
		at := time.Now()
		if err := s.Recover(ctx, l); err != nil {
			b.Fatal(err)
		}
		replay += time.Since(at)
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		raw += insertRaw(b, filepath.Join(dir, fmt.Sprint("raw", n)), tables)
	}
	events := float64(n * len(l.events))
	b.ReportMetric(float64(raw)/float64(replay), "x-of-raw")
	b.ReportMetric(events/replay.Seconds(), "events/s")
	b.ReportMetric(0, "ns/op")
}

func insertRaw(b *testing.B, path string, tables []rawTable) time.Duration {
	if err := mustOpen(b, path).Close(); err != nil { // this makes the schema
		b.Fatal(err)
	}
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=synchronous(NORMAL)&_pragma=temp_store(MEMORY)")
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	at := time.Now()
	stmts := make([]*sql.Stmt, len(tables))
	for i, t := range tables {
		if stmts[i], err = db.Prepare(t.insert); err != nil {
			b.Fatal(err)
		}
		defer stmts[i].Close()
	}
	const batch = 500
	// Like the projector, this makes one transaction per 500 events, with a proportional share of
	// every other table's rows. Foreign keys are off, which makes the raw side faster.
	events := len(tables[0].rows)
	share := func(i, done int) int { return len(tables[i].rows) * min(done, events) / events }
	for done := 0; done < events; done += batch {
		tx, err := db.Begin()
		if err != nil {
			b.Fatal(err)
		}
		for i, t := range tables {
			for _, row := range t.rows[share(i, done):share(i, done+batch)] {
				if _, err := tx.Stmt(stmts[i]).Exec(row...); err != nil {
					b.Fatal(err)
				}
			}
		}
		if err := tx.Commit(); err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(at)
}

// BenchmarkApplyOne measures the projector's part of the time from an event to its reader.
func BenchmarkApplyOne(b *testing.B) {
	l, s := newLog(), newStore(b)
	l.say(b, "window.opened", &contract.WindowOpened{Window: "w", App: "a", State: contract.WindowNormal})
	project(b, s, l)
	for b.Loop() {
		e := l.say(b, "window.moved", &contract.WindowMoved{Window: "w", Frame: contract.Frame{W: 100, H: 100}, State: contract.WindowNormal})
		if err := s.Apply(b.Context(), []contract.Event{e}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkListRevisions lists the 60 revisions of a document.
func BenchmarkListRevisions(b *testing.B) {
	l, s := newLog(), newStore(b)
	doc := contract.NewID()
	for i := 1; i <= 60; i++ {
		body := strings.Repeat(fmt.Sprintln("line", i), 200)
		l.say(b, "document.revised", &contract.DocumentRevised{Document: doc, Title: "t", Path: "artifacts/x.md", Revision: i, Base: i - 1, Author: "a", SHA256: blobRef(body), Body: body}, about(doc))
	}
	project(b, s, l)
	for b.Loop() {
		list, err := s.Revisions(b.Context(), doc, 0, state.MaxPage)
		if err != nil || len(list) != 60 {
			b.Fatal(len(list), err)
		}
	}
}
