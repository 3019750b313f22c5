package state_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/state"
)

const cid = contract.CID("abcdefghij012345")

var start = time.Date(2026, 3, 4, 5, 6, 7, 8000, time.UTC)

// memLog is a log as the projector sees it: without gaps, ordered, growing.
type memLog struct {
	mu     sync.Mutex
	events []contract.Event
	grown  chan struct{}
}

func newLog() *memLog { return &memLog{grown: make(chan struct{})} }

func (l *memLog) Last() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return uint64(len(l.events))
}

func (l *memLog) Read(_ context.Context, after uint64, limit int) ([]contract.Event, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if after >= uint64(len(l.events)) {
		return nil, nil
	}
	rest := l.events[after:]
	return append([]contract.Event(nil), rest[:min(limit, len(rest))]...), nil
}

func (l *memLog) Follow(ctx context.Context, after uint64) iter.Seq2[contract.Event, error] {
	return func(yield func(contract.Event, error) bool) {
		for {
			l.mu.Lock()
			grown := l.grown
			l.mu.Unlock()
			events, _ := l.Read(ctx, after, 100)
			for _, e := range events {
				if !yield(e, nil) {
					return
				}
				after = e.Sequence
			}
			if len(events) > 0 {
				continue
			}
			select {
			case <-grown:
			case <-ctx.Done():
				yield(contract.Event{}, ctx.Err())
				return
			}
		}
	}
}

// add appends an event as the ledger stamps it.
func (l *memLog) add(e contract.Event) contract.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := uint64(len(l.events) + 1)
	e.SpecVersion, e.Sequence, e.Computer = "1.0", n, cid
	if e.Epoch == 0 {
		e.Epoch = 1
	}
	if e.ID == "" {
		e.ID = contract.DeriveID("test", "event:"+time.Duration(n).String())
	}
	if e.Source == "" {
		by := contract.System()
		if info, ok := contract.Lookup(e.Type); ok {
			by = contract.Actor{Kind: info.By[0]}
		}
		if by.Kind == contract.KindPerson {
			by = contract.Person(e.User)
		}
		e.Source, e.Actor = contract.Source(cid, by.Kind), by.Name()
	}
	if e.Time.IsZero() {
		e.Time = start.Add(time.Duration(n) * time.Second)
	}
	if len(e.Data) > 0 || e.DataRef != "" {
		e.DataContentType = "application/json"
	}
	l.events = append(l.events, e)
	close(l.grown)
	l.grown = make(chan struct{})
	return e
}

// say adds an event with a payload, which must be valid.
func (l *memLog) say(t testing.TB, typ string, p contract.Payload, with ...func(*contract.Event)) contract.Event {
	t.Helper()
	data, err := contract.EncodeData(typ, p)
	if err != nil {
		t.Fatalf("%s: %v", typ, err)
	}
	e := contract.Event{Type: typ, Data: data}
	for _, f := range with {
		f(&e)
	}
	return l.add(e)
}

func inRun(run string) func(*contract.Event)   { return func(e *contract.Event) { e.Run = run } }
func inTask(task string) func(*contract.Event) { return func(e *contract.Event) { e.Task = task } }
func about(s string) func(*contract.Event)     { return func(e *contract.Event) { e.Subject = s } }

func mustOpen(t testing.TB, path string, opts ...state.Option) *state.Store {
	t.Helper()
	s, err := state.Open(t.Context(), path, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newStore(t testing.TB, opts ...state.Option) *state.Store {
	t.Helper()
	s := mustOpen(t, filepath.Join(t.TempDir(), "state.sqlite"), opts...)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func dump(t testing.TB, path string) string {
	t.Helper()
	var b strings.Builder
	if err := state.Dump(context.Background(), path, &b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

const commitA, commitB = "1111111111111111111111111111111111111111", "2222222222222222222222222222222222222222"
const treeA = "3333333333333333333333333333333333333333"

// story fills a log with one run, from its prompt to its report, and everything that belongs to it.
func story(t testing.TB, l *memLog) (run, task, doc string) {
	l.say(t, "computer.created", &contract.ComputerCreated{Name: "one", Driver: "local"})
	l.say(t, "computer.woken", &contract.ComputerWoken{Version: "0.1", Driver: "local", Isolation: "bubblewrap", Notes: []string{"no cgroups"}})
	prompt := l.say(t, "prompt.submitted", &contract.PromptSubmitted{Text: "make it blue"})
	run = contract.DeriveID(prompt.ID, "run")
	doc = contract.DeriveID(run, "document")
	task = contract.DeriveID(run, "task:1")
	r, k := inRun(run), inTask(task)
	l.say(t, "run.started", &contract.RunStarted{Document: doc, Provider: "rehearsal", Model: "rehearsal/tour"}, r)
	l.say(t, "run.planned", &contract.RunPlanned{Objective: "a blue desktop", Plan: []contract.PlanItem{{Text: "edit the theme", Status: contract.PlanActive, Task: task}}}, r)
	dt := contract.DirectorTask{ID: task, Run: run, Kind: contract.KindAgent, Goal: "edit the theme"}.WithDefaults()
	l.say(t, "task.requested", &contract.TaskRequested{Task: dt}, r, k)
	l.say(t, "checkpoint.created", &contract.CheckpointCreated{Commit: commitA, Tree: treeA, Kind: contract.CheckpointBefore, Message: "before", Seq: 6, Verified: contract.VerificationUnknown}, r, k)
	l.say(t, "task.started", &contract.TaskStarted{Attempt: 1, Box: "b1", Base: commitA, Fence: "f"}, r, k)
	l.say(t, "turn.recorded", &contract.TurnRecorded{Attempt: 1, Index: 0, Message: contract.Message{Role: contract.MessageAssistant, Parts: []contract.Part{{Text: "hm"}}}}, r, k)
	l.say(t, "tool.called", &contract.ToolCalled{Call: "c1", Name: "read", Args: json.RawMessage(`{"path":"x"}`), ReadOnly: true, Attempt: 1}, r, k)
	l.say(t, "tool.returned", &contract.ToolReturned{Call: "c1", Name: "read", OK: true, Output: "blue", DurationMS: 3, Attempt: 1}, r, k)
	l.say(t, "tool.called", &contract.ToolCalled{Call: "c2", Name: "bash", Args: json.RawMessage(`{}`), Attempt: 1}, r, k)
	l.say(t, "usage.metered", &contract.UsageMetered{Call: "m1", Role: "associate", Provider: "p", Model: "m", Outcome: "ok", Usage: contract.Usage{TokensIn: 10, TokensOut: 20, CostUSD: 0.5}}, r, k)
	l.say(t, "question.asked", &contract.QuestionAsked{Question: contract.Question{ID: "q1", Text: "which blue?", Choices: []string{"navy", "sky"}}}, r)
	l.say(t, "question.answered", &contract.QuestionAnswered{Question: "q1", Answer: "sky"}, r)
	l.say(t, "verification.finished", &contract.VerificationFinished{Attempt: 1, Verification: contract.Verification{Profile: contract.VerifySmoke, Status: contract.VerificationPass, Tree: treeA}}, r, k)
	l.say(t, "publish.started", &contract.PublishStarted{Publish: "p1", Commit: commitB, Base: commitA, Paths: 1}, r, k)
	l.say(t, "publish.finished", &contract.PublishFinished{Publish: "p1", Commit: commitB}, r, k)
	l.say(t, "task.finished", &contract.TaskFinished{Result: contract.AssociateResult{Version: 1, Task: task, Attempt: 1, Status: contract.ResultOK, Summary: "it is blue", Base: commitA, Head: commitB,
		Verification: contract.Verification{Profile: contract.VerifySmoke, Status: contract.VerificationPass}, Citations: []contract.Citation{cheese}}}, r, k)
	body := "# Blue\n"
	l.say(t, "document.revised", &contract.DocumentRevised{Document: doc, Title: "Blue", Path: "artifacts/runs/blue.md", Revision: 1, Author: "director", SHA256: blobRef(body), Body: body}, r, about(doc))
	l.say(t, "window.opened", &contract.WindowOpened{Window: "w1", App: "run", Title: "Run", Frame: contract.Frame{W: 10, H: 10}, State: contract.WindowNormal})
	l.say(t, "egress.denied", &contract.EgressDecided{Box: "b1", Kind: contract.BoxTask, Host: "evil.example", Port: 443, Reason: "not allowed"}, r, k)
	l.say(t, "run.reported", &contract.RunReported{Status: contract.RunDone, Summary: "done", Document: doc, Checkpoint: commitB, Verified: contract.VerificationPass}, r)
	return run, task, doc
}

func blobRef(s string) contract.BlobRef { return contract.NewBlobRef(sum(s)) }

// project applies the whole log.
func project(t testing.TB, s *state.Store, l *memLog) {
	t.Helper()
	if err := s.Recover(t.Context(), l); err != nil {
		t.Fatal(err)
	}
}

func TestARunIsToldWhole(t *testing.T) {
	l, s := newLog(), newStore(t)
	run, task, doc := story(t, l)
	project(t, s, l)
	ctx := t.Context()
	if bad, err := s.Poison(ctx, 0); err != nil || len(bad) > 0 {
		t.Fatalf("poison: %v %+v", err, bad)
	}
	r, err := s.Run(ctx, run)
	if err != nil {
		t.Fatal(err)
	}
	if r.Status != contract.RunDone || r.Document != doc || r.Usage.CostUSD != 0.5 || r.Plan[0].Text != "edit the theme" || r.Usage.ToolCalls != 2 {
		t.Errorf("run is %+v", r)
	}
	messages, err := s.Messages(ctx, run, 0)
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, m := range messages {
		said = append(said, string(m.Role)+" "+m.Kind)
	}
	if got, want := strings.Join(said, ", "), "person prompt, director question, person answer, director report"; got != want {
		t.Errorf("messages are %s; want %s", got, want)
	}
	if len(r.Tasks) != 1 {
		t.Fatalf("%d tasks", len(r.Tasks))
	}
	k, err := s.Task(ctx, r.Tasks[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	turns, err := s.Turns(ctx, k.ID, 0)
	if err != nil {
		t.Fatal(err)
	}
	if k.ID != task || k.Status != "ok" || k.Head != commitB || k.Result == nil || k.Verification != contract.VerificationPass || len(turns) != 1 || len(k.Attempts) != 1 || len(k.Verifications) != 1 {
		t.Errorf("task is %+v", k)
	}
	if len(k.ToolCalls) != 2 || k.ToolCalls[0].Status != "ok" || k.ToolCalls[1].Status != "called" {
		t.Errorf("tool calls are %+v", k.ToolCalls)
	}
	c, err := s.Checkpoint(ctx, commitA[:8])
	if err != nil || c.Seq != 6 {
		t.Errorf("checkpoint is %+v, %v", c, err)
	}
	if d, err := s.Document(ctx, doc); err != nil || d.Body != "# Blue\n" || d.Revision != 1 {
		t.Errorf("document is %+v, %v", d, err)
	}
	if comp, err := s.Computer(ctx); err != nil || comp.Name != "one" || comp.LastSeq != l.Last() || comp.Notes[0] != "no cgroups" {
		t.Errorf("computer is %+v, %v", comp, err)
	}
	if _, err := s.Run(ctx, contract.NewID()); !fault.Is(err, fault.NotFound) {
		t.Errorf("a run that is not there gives %v", err)
	}
}

func TestEveryTypeHasAProjectionOrSaysThatItHasNone(t *testing.T) {
	for _, info := range contract.Types() {
		if has := state.HasProjection(info.Type); has != info.Projected {
			t.Errorf("%s: Projected is %v but a projection exists: %v", info.Type, info.Projected, has)
		}
	}
}

func TestPoisonIsKeptAndProjectionGoesOn(t *testing.T) {
	l, s := newLog(), newStore(t)
	run, task, doc := story(t, l)
	bad := []contract.Event{
		{Type: "never.heard", Data: json.RawMessage(`{}`)},
		{Type: "run.moved", Data: json.RawMessage(`{"status":"flying"}`), Run: run},
		{Type: "run.moved", Data: json.RawMessage(`{"status":"working"}`), Run: contract.NewID()},
		{Type: "run.moved", Data: json.RawMessage(`{"status":"working","reason":3}`), Run: run},
		{Type: "window.closed", Data: json.RawMessage(`{"window":"nowhere"}`)},
		{Type: "tool.called", Data: json.RawMessage(`{"call":"c","name":"n","args":{},"read_only":true,"attempt":1}`), Task: contract.NewID(), Run: run},
		{Type: "run.planned", DataRef: blobRef("not there"), Run: run},
		{Type: "usage.metered", Data: json.RawMessage(`{"call":"m1","role":"r","provider":"p","model":"m","usage":{"wall_ms":0,"tool_calls":0,"tokens_in":1,"tokens_out":1,"cost_usd":9},"outcome":"ok","retries":1}`), Run: run},
	}
	first := l.Last()
	for _, e := range bad {
		l.add(e)
	}
	// These are a second result for the same attempt, and a revision based on an old one.
	l.say(t, "task.finished", &contract.TaskFinished{Result: contract.AssociateResult{Version: 1, Task: task, Attempt: 1, Status: contract.ResultFailed, Summary: "no",
		Verification: contract.Verification{Profile: contract.VerifyNone, Status: contract.VerificationUnknown}}}, inRun(run), inTask(task))
	l.say(t, "document.revised", &contract.DocumentRevised{Document: doc, Title: "B", Path: "artifacts/b.md", Revision: 3, Base: 2, Author: "x", SHA256: blobRef(""), Body: ""}, about(doc))
	want := len(bad) + 2
	l.say(t, "computer.renamed", &contract.ComputerRenamed{Name: "after"})
	project(t, s, l)

	poison, err := s.Poison(t.Context(), 0)
	if err != nil || len(poison) != want {
		t.Fatalf("%d poisoned events, want %d (%v): %+v", len(poison), want, err, poison)
	}
	for _, p := range poison {
		if p.Sequence <= first || p.Error == "" {
			t.Errorf("event %d is poison: %q", p.Sequence, p.Error)
		}
	}
	if c, err := s.Computer(t.Context()); err != nil || c.Name != "after" || c.Poison != want {
		t.Errorf("what followed the poison is not projected: %+v %v", c, err)
	}
	if d, err := s.Task(t.Context(), task); err != nil || d.Status != "ok" {
		t.Errorf("a second result replaced the first: %+v %v", d.Task, err)
	}
	if u, err := s.Usage(t.Context(), state.UsageFilter{Run: run}); err != nil || len(u) != 1 || u[0].CostUSD != 0.5 {
		t.Errorf("a call metered twice was billed twice: %+v %v", u, err)
	}
}

func TestADuplicateHasNoEffect(t *testing.T) {
	l, s := newLog(), newStore(t)
	l.say(t, "computer.created", &contract.ComputerCreated{Name: "one", Driver: "local"})
	e := l.say(t, "computer.renamed", &contract.ComputerRenamed{Name: "two"})
	l.say(t, "computer.renamed", &contract.ComputerRenamed{Name: "three"})
	e.Sequence = 0
	l.add(e)
	project(t, s, l)
	c, err := s.Computer(t.Context())
	if err != nil || c.Name != "three" {
		t.Errorf("computer is %+v, %v", c, err)
	}
	seq, digest, ok, err := s.ByID(t.Context(), contract.Origin(e.Source), e.ID)
	if err != nil || !ok || seq != 2 || digest != contract.Digest(e) {
		t.Errorf("ByID gives %d %v %v", seq, ok, err)
	}
}

// TestADuplicateAmongManyLeavesNoneOut: a replay writes the rows of many events at once. None is
// left out because another's id is taken already: the state equals that of applying the events one
// by one.
func TestADuplicateAmongManyLeavesNoneOut(t *testing.T) {
	l := newLog()
	l.say(t, "computer.created", &contract.ComputerCreated{Name: "one", Driver: "local"})
	for i := range 40 {
		e := l.say(t, "computer.renamed", &contract.ComputerRenamed{Name: fmt.Sprint(i)})
		if i == 20 {
			l.add(e)
		}
	}
	dir := t.TempDir()
	atOnce, each := filepath.Join(dir, "at-once"), filepath.Join(dir, "each")
	s := mustOpen(t, atOnce)
	project(t, s, l)
	one := mustOpen(t, each)
	for i := range l.events {
		if err := one.Apply(t.Context(), l.events[i:i+1]); err != nil {
			t.Fatal(err)
		}
	}
	if d, err := state.Compare(t.Context(), atOnce, each); err != nil || len(d) > 0 {
		t.Errorf("at once and one by one differ: %+v, %v", d, err)
	}
}

func TestIndex(t *testing.T) {
	l, s := newLog(), newStore(t)
	_, _, doc := story(t, l)
	project(t, s, l)
	ctx := t.Context()
	if n, err := s.LastBySubject(ctx, doc); err != nil || l.events[n-1].Type != "document.revised" {
		t.Errorf("last of the document's subject is %d, %v", n, err)
	}
	if n, err := s.LastBySubject(ctx, "nothing"); err != nil || n != 0 {
		t.Errorf("last of no subject is %d, %v", n, err)
	}
	if n, err := s.LastSeq(ctx); err != nil || n != l.Last() {
		t.Errorf("last is %d, %v", n, err)
	}
	if _, _, ok, err := s.ByID(ctx, "x", "y"); ok || err != nil {
		t.Errorf("an unknown id is found: %v %v", ok, err)
	}
}

func TestEventsComeBackAsTheyWere(t *testing.T) {
	l, s := newLog(), newStore(t)
	story(t, l)
	project(t, s, l)
	var got []state.Event
	for after := uint64(0); ; {
		page, err := s.Events(t.Context(), state.EventFilter{After: after, Limit: 7})
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		got, after = append(got, page...), page[len(page)-1].Sequence
	}
	if len(got) != len(l.events) {
		t.Fatalf("%d events, want %d", len(got), len(l.events))
	}
	for i, e := range got {
		have, err := contract.MarshalEvent(e.Event)
		if err != nil {
			t.Fatal(err)
		}
		want, err := contract.MarshalEvent(l.events[i])
		if err != nil {
			t.Fatal(err)
		}
		if string(have) != string(want) {
			t.Errorf("event %d is\n%s, want\n%s", i+1, have, want)
		}
	}
	some, err := s.Events(t.Context(), state.EventFilter{Types: []string{"tool.called", "run.started"}})
	if err != nil || len(some) != 3 {
		t.Errorf("%d events of two types, %v", len(some), err)
	}
}

func TestProjectFollowsAndWaitReadsOwnWrites(t *testing.T) {
	l, s := newLog(), newStore(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Project(ctx, l) }()
	l.say(t, "computer.created", &contract.ComputerCreated{Name: "one", Driver: "local"})
	for i := range 200 {
		e := l.say(t, "computer.renamed", &contract.ComputerRenamed{Name: "n" + time.Duration(i).String()})
		if i%20 == 0 {
			if err := s.Wait(t.Context(), e.Sequence); err != nil {
				t.Fatal(err)
			}
			if c, err := s.Computer(t.Context()); err != nil || c.LastSeq < e.Sequence {
				t.Fatalf("after waiting for %d the state is at %d (%v)", e.Sequence, c.LastSeq, err)
			}
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Project ended with %v", err)
	}
	short, cancel2 := context.WithCancel(t.Context())
	cancel2()
	if err := s.Wait(short, 1<<30); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for what never comes gives %v", err)
	}
}

// endsAt is a context that ends when its state is asked for the n-th time.
type endsAt struct {
	context.Context
	left int64
	once sync.Once
	done chan struct{}
}

func (c *endsAt) Done() <-chan struct{} {
	if atomic.AddInt64(&c.left, -1) == 0 {
		c.once.Do(func() { close(c.done) })
		for range 1000 {
			runtime.Gosched() // lets the goroutine run that watches the context
		}
	}
	return c.done
}

func (c *endsAt) Err() error {
	select {
	case <-c.done:
		return context.Canceled
	default:
		return nil
	}
}

// TestWhateverEndsAProjectionTheNextOneGoesOn: the driver may report a statement as interrupted
// although it was executed, such as one that began a transaction.
func TestWhateverEndsAProjectionTheNextOneGoesOn(t *testing.T) {
	l, s := newLog(), newStore(t)
	cut := 0
	for n := range int64(100) {
		l.say(t, "computer.woken", &contract.ComputerWoken{Version: "0.1", Driver: "local", Isolation: "bubblewrap"})
		events, err := l.Read(t.Context(), uint64(n), 1)
		if err != nil {
			t.Fatal(err)
		}
		if s.Apply(&endsAt{Context: t.Context(), left: 1 + n%20, done: make(chan struct{})}, events) != nil {
			cut++
		}
		if err := s.Apply(t.Context(), events); err != nil || s.Last() != uint64(n+1) {
			t.Fatalf("after one that ended when it was asked for the %dth time: at %d, %v", 1+n%20, s.Last(), err)
		}
	}
	if cut == 0 {
		t.Error("none was cut off")
	}
}

// brokenLog is a log with an event missing.
type brokenLog struct{ *memLog }

func (l brokenLog) Read(ctx context.Context, after uint64, limit int) ([]contract.Event, error) {
	e, err := l.memLog.Read(ctx, after+1, limit)
	return e, err
}

func TestAGapStopsProjectionAndWaiters(t *testing.T) {
	l, s := newLog(), newStore(t)
	story(t, l)
	if err := s.Project(t.Context(), brokenLog{l}); err == nil {
		t.Fatal("a log with a hole was projected")
	}
	if s.Last() != 0 {
		t.Errorf("something was applied: %d", s.Last())
	}
	if err := s.Wait(t.Context(), 1); !fault.Is(err, fault.Unavailable) {
		t.Errorf("a waiter is told %v", err)
	}
}

// memBlobs holds blobs in memory.
type memBlobs map[contract.BlobRef]string

func (m memBlobs) Open(_ context.Context, _ contract.CID, ref contract.BlobRef) (io.ReadSeekCloser, int64, error) {
	b, ok := m[ref]
	if !ok {
		return nil, 0, fault.New("blobs.Open", fault.NotFound, "", errors.New("no such blob"))
	}
	return nopCloser{strings.NewReader(b)}, int64(len(b)), nil
}

type nopCloser struct{ io.ReadSeeker }

func (nopCloser) Close() error { return nil }

func TestDataInABlobAreProjected(t *testing.T) {
	l := newLog()
	body := strings.Repeat("a long line of text\n", 10000)
	doc := contract.NewID()
	data, err := contract.EncodeData("document.revised", &contract.DocumentRevised{Document: doc, Title: "T", Path: "artifacts/t.md", Revision: 1, Author: "me", SHA256: blobRef(body), Body: body})
	if err != nil {
		t.Fatal(err)
	}
	ref := blobRef(string(data))
	s := newStore(t, state.WithBlobs(memBlobs{ref: string(data)}))
	l.add(contract.Event{Type: "document.revised", DataRef: ref, Subject: doc, Source: contract.OriginOfClients(cid)})
	project(t, s, l)
	if d, err := s.Document(t.Context(), doc); err != nil || d.Body != body {
		t.Errorf("the document has %d bytes, %v", len(d.Body), err)
	}
}

func TestStateBeyondTheLogIsDropped(t *testing.T) {
	l := newLog()
	story(t, l)
	path := filepath.Join(t.TempDir(), "state.sqlite")
	s := mustOpen(t, path)
	project(t, s, l)
	l.events = l.events[:12] // the log as restored from an old backup
	project(t, s, l)
	if s.Last() != 12 {
		t.Errorf("the state is at %d", s.Last())
	}
	// This is another log of the same length.
	other := newLog()
	for _, e := range l.events {
		e.Source = "" // it is stamped anew, with other content below
		other.add(e)
	}
	other.events[11].Subject = "changed"
	project(t, s, other)
	ref := filepath.Join(t.TempDir(), "ref.sqlite")
	fresh := mustOpen(t, ref)
	project(t, fresh, other)
	for _, x := range []*state.Store{s, fresh} {
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if d, err := state.Compare(t.Context(), path, ref); err != nil || len(d) > 0 {
		t.Errorf("it differs from a straight replay: %+v %v", d, err)
	}
}
