package state_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/state/schema"
)

// sabotage changes a state file past the store.
func sabotage(t testing.TB, path, query string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(query); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestCheckFindsWhatIsNotFromTheLog(t *testing.T) {
	l := newLog()
	story(t, l)
	path := filepath.Join(t.TempDir(), "state.sqlite")
	s := mustOpen(t, path)
	project(t, s, l)
	ctx := t.Context()
	// This happens while the file is open and the state is behind the log.
	l.say(t, "computer.renamed", &contract.ComputerRenamed{Name: "later"})
	rep, err := state.Check(ctx, path, l)
	if err != nil || !rep.Clean() || rep.Swapped || rep.Seq != l.Last()-1 || rep.Rows == 0 {
		t.Fatalf("%+v %v", rep, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	sabotage(t, path, "UPDATE runs SET status = 'failed'; DELETE FROM tool_calls WHERE call = 'c2'; INSERT INTO files VALUES ('x', 1, '', '', 1)")
	rep, err = state.Check(ctx, path, l)
	if err != nil || rep.Clean() {
		t.Fatalf("%+v %v", rep, err)
	}
	var tables []string
	for _, d := range rep.Differences {
		tables = append(tables, d.Table)
	}
	if got := strings.Join(tables, " "); got != "files runs tool_calls" {
		t.Errorf("differences in %s", got)
	}
	before := dump(t, path)
	if _, err := state.Check(ctx, path, l); err != nil || dump(t, path) != before {
		t.Errorf("a check changed the file (%v)", err)
	}
	rep, err = state.Rebuild(ctx, path, l)
	if err != nil || !rep.Swapped || len(rep.Differences) != 3 || rep.Last != l.Last() {
		t.Fatalf("%+v %v", rep, err)
	}
	if rep, err = state.Check(ctx, path, l); err != nil || !rep.Clean() || rep.Seq != l.Last() {
		t.Errorf("after the rebuild: %+v %v", rep, err)
	}
	left, err := filepath.Glob(path + "*")
	if err != nil || len(left) != 1 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestRebuildReplacesWhatCannotBeRead(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"garbage":   func(p string) error { return os.WriteFile(p, []byte(strings.Repeat("not a database ", 500)), 0o600) },
		"truncated": func(p string) error { return os.Truncate(p, 5000) },
		"empty":     func(p string) error { return os.Truncate(p, 0) },
		"missing":   os.Remove,
	} {
		t.Run(name, func(t *testing.T) {
			l := newLog()
			run, _, _ := story(t, l)
			path := filepath.Join(t.TempDir(), "state.sqlite")
			s := mustOpen(t, path)
			project(t, s, l)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if err := spoil(path); err != nil {
				t.Fatal(err)
			}
			rep, err := state.Rebuild(t.Context(), path, l)
			if err != nil || !rep.Swapped || rep.Clean() {
				t.Fatalf("%+v %v", rep, err)
			}
			s = mustOpen(t, path)
			defer s.Close()
			if r, err := s.Run(t.Context(), run); err != nil || r.Status != contract.RunDone {
				t.Errorf("%+v %v", r, err)
			}
		})
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	newer := filepath.Join(dir, "newer.sqlite")
	if err := mustOpen(t, newer).Close(); err != nil {
		t.Fatal(err)
	}
	sabotage(t, newer, fmt.Sprintf("PRAGMA user_version = %d", schema.Version()+1))
	projector := filepath.Join(dir, "projector.sqlite")
	if err := mustOpen(t, projector).Close(); err != nil {
		t.Fatal(err)
	}
	sabotage(t, projector, "UPDATE meta SET value = '999' WHERE key = 'projector'")
	foreign := filepath.Join(dir, "foreign.sqlite")
	sabotage(t, foreign, "CREATE TABLE x (y)")
	garbage := filepath.Join(dir, "garbage.sqlite")
	if err := os.WriteFile(garbage, []byte(strings.Repeat("x", 4096)), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, code := range map[string]fault.Code{
		newer: fault.Newer, projector: fault.Newer, foreign: fault.Invalid, garbage: fault.Invalid,
		filepath.Join(dir, "no", "such", "state.sqlite"): fault.NotFound,
	} {
		before, _ := os.ReadFile(path)
		s, err := state.Open(t.Context(), path)
		if !fault.Is(err, code) || fault.HintOf(err) == "" {
			t.Errorf("%s: %v (hint %q)", filepath.Base(path), err, fault.HintOf(err))
		}
		if s != nil {
			t.Errorf("%s: opened", path)
		}
		if after, _ := os.ReadFile(path); path != newer && path != projector && string(after) != string(before) {
			t.Errorf("%s was changed", path)
		}
	}
}

// TestMigrationsFromEveryEarlierVersion shows that a file of every earlier schema, with rows in it,
// ends as if it had been made with the newest schema.
func TestMigrationsFromEveryEarlierVersion(t *testing.T) {
	l := newLog()
	story(t, l)
	want := filepath.Join(t.TempDir(), "want.sqlite")
	s := mustOpen(t, want)
	project(t, s, l)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for version := 1; version < schema.Version(); version++ {
		path := filepath.Join(t.TempDir(), "old.sqlite")
		if err := mustOpen(t, path, state.WithSchema(version)).Close(); err != nil {
			t.Fatal(err)
		}
		// These rows are as an older projector made them.
		sabotage(t, path, "INSERT INTO events (seq, id, source, type, time, epoch, computer, digest) VALUES (1, 'x', 'y', 'z', 't', 1, 'c', x''); UPDATE meta SET value = '1' WHERE key = 'last_seq'; UPDATE meta SET value = '0' WHERE key = 'projector'")
		s := mustOpen(t, path)
		project(t, s, l)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if d, err := state.Compare(t.Context(), path, want); err != nil || len(d) > 0 {
			t.Errorf("from version %d: %+v %v", version, d, err)
		}
		if schemaOf(t, path) != schemaOf(t, want) {
			t.Errorf("from version %d the schema is\n%s", version, schemaOf(t, path))
		}
	}
}

func schemaOf(t testing.TB, path string) string {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var out string
	if err := db.QueryRow("SELECT group_concat(sql, x'0a') FROM (SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY type, name)").Scan(&out); err != nil {
		t.Fatal(err)
	}
	return out
}

// scramble draws a log of events that fit, events that don't, invalid events and duplicates, in any
// order.
func scramble(t *rapid.T) *memLog {
	l := newLog()
	ids := make([]string, 3)
	for i := range ids {
		ids[i] = contract.DeriveID("id", fmt.Sprint(i))
	}
	pick := func(what string) string { return rapid.SampledFrom(ids).Draw(t, what) }
	n := rapid.IntRange(0, 60).Draw(t, "events")
	for range n {
		run, task := contract.DeriveID(pick("prompt"), "run"), pick("task")
		e := contract.Event{Run: run, Task: task}
		data := func(typ string, p contract.Payload) {
			b, err := contract.EncodeData(typ, p)
			if err != nil {
				t.Fatalf("%v", err)
			}
			e.Type, e.Data = typ, b
		}
		attempt := rapid.IntRange(1, 2).Draw(t, "attempt")
		switch rapid.IntRange(0, 15).Draw(t, "kind") {
		case 0, 1:
			data("prompt.submitted", &contract.PromptSubmitted{Text: "p"})
			e.ID, e.Run = pick("prompt id"), ""
		case 2:
			data("run.moved", &contract.RunMoved{Status: rapid.SampledFrom([]contract.RunStatus{contract.RunWorking, contract.RunFailed}).Draw(t, "status")})
		case 3, 4:
			data("task.requested", &contract.TaskRequested{Task: contract.DirectorTask{ID: task, Run: run, Kind: contract.KindAgent, Goal: "g", Attempt: attempt}.WithDefaults()})
		case 5:
			data("task.started", &contract.TaskStarted{Attempt: attempt, Box: "b", Fence: "f"})
		case 6:
			data("task.finished", &contract.TaskFinished{Result: contract.AssociateResult{Version: 1, Task: task, Attempt: attempt, Status: contract.ResultFailed, Summary: "s",
				Citations:    []contract.Citation{cheese},
				Verification: contract.Verification{Profile: contract.VerifyNone, Status: contract.VerificationUnknown}}})
		case 7:
			data("tool.called", &contract.ToolCalled{Call: pick("call"), Name: "n", Args: json.RawMessage(`{}`), Attempt: attempt})
		case 8:
			data("tool.returned", &contract.ToolReturned{Call: pick("call"), Name: "n", Attempt: attempt, OK: true})
		case 9:
			rev := rapid.IntRange(1, 4).Draw(t, "revision")
			data("document.revised", &contract.DocumentRevised{Document: task, Title: "t", Path: "artifacts/x.md", Revision: rev, Base: rev - 1, Author: "a", SHA256: blobRef("b"), Body: "b"})
		case 10:
			data("window.opened", &contract.WindowOpened{Window: pick("window"), App: "a", State: contract.WindowNormal})
		case 11:
			data("window.closed", &contract.WindowClosed{Window: pick("window")})
		case 12:
			e.Type, e.Data = "never.heard", json.RawMessage(`{"x":1}`)
		case 13:
			e.Type, e.DataRef = "run.planned", blobRef(pick("blob"))
		case 14:
			data("document.proposed", &contract.DocumentProposed{Proposal: pick("proposal"), Document: task, Base: rapid.IntRange(0, 3).Draw(t, "base"), Author: "a", SHA256: blobRef("p"), Body: "p"})
			e.Source = contract.Source(cid, contract.KindAssociate)
		case 15:
			p := &contract.ProposalResolved{Proposal: pick("proposal"), Document: task, Resolution: contract.ProposalDismissed, By: "u"}
			if rapid.Bool().Draw(t, "accepted") {
				p.Resolution, p.Revision = contract.ProposalAccepted, 2
			}
			data("proposal.resolved", p)
			e.Source = contract.Source(cid, rapid.SampledFrom([]contract.ActorKind{contract.KindPerson, contract.KindSystem}).Draw(t, "by"))
		}
		if n := len(l.events); n > 0 && rapid.IntRange(0, 5).Draw(t, "duplicate") == 0 {
			e = l.events[rapid.IntRange(0, n-1).Draw(t, "of")]
		}
		l.add(e)
	}
	return l
}

// TestAnyBatchingAndAnyCrashGivesTheSameState shows that however the log is cut into batches,
// wherever the projector crashes, and whatever is in the log, the dump equals that of one straight
// replay, and no event is missing from the events table.
func TestAnyBatchingAndAnyCrashGivesTheSameState(t *testing.T) {
	dir := t.TempDir()
	template := filepath.Join(dir, "template.sqlite") // made once, so that each case need not migrate
	if err := mustOpen(t, template).Close(); err != nil {
		t.Fatal(err)
	}
	empty, err := os.ReadFile(template)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		l := scramble(t)
		ctx := context.Background()
		straight, cut := filepath.Join(dir, fmt.Sprintf("%d-a", n)), filepath.Join(dir, fmt.Sprintf("%d-b", n))
		for _, path := range []string{straight, cut} {
			if err := os.WriteFile(path, empty, 0o600); err != nil {
				t.Fatalf("%v", err)
			}
		}
		open := func(path string) *state.Store {
			s, err := state.Open(ctx, path)
			if err != nil {
				t.Fatalf("%v", err)
			}
			return s
		}
		s := open(straight)
		if err := s.Recover(ctx, l); err != nil {
			t.Fatalf("%v", err)
		}
		if err := s.Close(); err != nil {
			t.Fatalf("%v", err)
		}
		s = open(cut)
		for at := uint64(0); at < l.Last(); at = s.Last() {
			// A batch may begin with events that are projected already.
			back := uint64(rapid.IntRange(0, int(min(at, 3))).Draw(t, "back"))
			batch, err := l.Read(ctx, at-back, rapid.IntRange(1, 20).Draw(t, "size"))
			if err != nil {
				t.Fatalf("%v", err)
			}
			c, cancel := context.WithCancel(ctx)
			crash := rapid.IntRange(0, 4).Draw(t, "crash") == 0
			if crash {
				cancel()
			}
			if err := s.Apply(c, batch); err != nil && !errors.Is(err, context.Canceled) {
				t.Fatalf("%v", err)
			}
			cancel()
			if crash {
				if err := s.Close(); err != nil {
					t.Fatalf("%v", err)
				}
				s = open(cut)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatalf("%v", err)
		}
		if d, err := state.Compare(ctx, cut, straight); err != nil || len(d) > 0 {
			t.Fatalf("%+v %v", d, err)
		}
		db, err := sql.Open("sqlite", straight)
		if err != nil {
			t.Fatalf("%v", err)
		}
		defer db.Close()
		var events, broken int
		if err := db.QueryRow("SELECT (SELECT count(*) FROM events), (SELECT count(*) FROM pragma_foreign_key_check)").Scan(&events, &broken); err != nil {
			t.Fatalf("%v", err)
		}
		if events != len(l.events) || broken != 0 {
			t.Fatalf("%d of %d events kept, %d broken references", events, len(l.events), broken)
		}
	})
}

// TestACopyTakenAtAnyMomentRecovers: the process dies inside a batch. What was committed stays, and
// the rest is replayed. The file is copied with its WAL while it is being written, as a crash would
// leave it.
func TestACopyTakenAtAnyMomentRecovers(t *testing.T) {
	l := newLog()
	story(t, l)
	for i := range 300 {
		l.say(t, "computer.renamed", &contract.ComputerRenamed{Name: fmt.Sprint("n", i)})
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "state.sqlite")
	s := mustOpen(t, path)
	var copies []string
	for at := uint64(0); at < l.Last(); at = s.Last() {
		batch, err := l.Read(t.Context(), at, 40)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Apply(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, fmt.Sprintf("copy-%d.sqlite", at))
		for _, suffix := range []string{"", "-wal"} {
			b, err := os.ReadFile(path + suffix)
			if err != nil {
				t.Fatal(err)
			}
			if suffix == "-wal" { // the last write is torn too
				b = append(b[:len(b)-min(len(b), 1000)], make([]byte, 500)...)
			}
			if err := os.WriteFile(to+suffix, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		copies = append(copies, to)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range copies {
		s := mustOpen(t, c)
		project(t, s, l)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if d, err := state.Compare(t.Context(), c, path); err != nil || len(d) > 0 {
			t.Errorf("%s: %+v %v", filepath.Base(c), d, err)
		}
	}
}

// TestEveryTypesBlobsAreKept shows that a blob is known to be referred to, whatever type the event
// has and wherever in its data the reference is. The types are the contract's, so that new ones are
// covered automatically.
func TestEveryTypesBlobsAreKept(t *testing.T) {
	l, s := newLog(), newStore(t)
	want := map[contract.BlobRef]uint64{}
	add := func(eventType string, data string, dataref contract.BlobRef) {
		e := l.add(contract.Event{Type: eventType, Data: json.RawMessage(data), DataRef: dataref})
		if dataref != "" {
			want[dataref] = e.Sequence
		}
		for _, ref := range contract.Refs([]byte(data)) {
			want[ref] = e.Sequence
		}
	}
	for _, info := range contract.Types() {
		// The reference is a field of its own, or deep within others, or the data themselves.
		add(info.Type, fmt.Sprintf(`{"ref":%q,"deep":{"list":[{"ref":%q}]}}`, blobRef(info.Type), blobRef(info.Type+" deep")), "")
		add(info.Type, "", blobRef(info.Type+" data"))
		filled := reflect.New(reflect.TypeOf(info.New()).Elem())
		fillRefs(filled.Elem(), info.Type)
		b, err := json.Marshal(filled.Interface())
		if err != nil {
			t.Fatal(err)
		}
		add(info.Type, string(b), "")
	}
	add("not.known", fmt.Sprintf(`{"x":%q}`, blobRef("unknown")), "")
	project(t, s, l)
	got, err := s.BlobRefs(t.Context())
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%d references are known, want %d (%v)", len(got), len(want), err)
	}
	for ref := range want {
		if got[ref] == 0 {
			t.Errorf("%s would be collected, although event %d names it", ref, want[ref])
		}
	}
}

// TestBlobsThatWouldBeMissed shows that a blob that a field of any event refers to is missed when
// it is gone, and that the hash of something that is kept elsewhere is not taken for a blob. The
// types are the contract's, so that new fields are covered automatically.
func TestBlobsThatWouldBeMissed(t *testing.T) {
	l, s := newLog(), newStore(t)
	want := map[contract.BlobRef]uint64{}
	elsewhere := map[contract.BlobRef]bool{}
	fields := 0
	for _, info := range contract.Types() {
		want[blobRef(info.Type+" data")] = l.add(contract.Event{Type: info.Type, DataRef: blobRef(info.Type + " data")}).Sequence
		filled := reflect.New(reflect.TypeOf(info.New()).Elem())
		fillRefs(filled.Elem(), info.Type)
		b, err := json.Marshal(filled.Interface())
		if err != nil {
			t.Fatal(err)
		}
		e := l.add(contract.Event{Type: info.Type, Data: b})
		for _, ref := range contract.Refs(b) {
			fields++
			if kept[fieldOf(filled.Elem(), ref)] {
				elsewhere[ref] = true
			} else {
				want[ref] = e.Sequence
			}
		}
	}
	want[blobRef("unknown")] = l.add(contract.Event{Type: "not.known", Data: json.RawMessage(fmt.Sprintf(`{"x":%q}`, blobRef("unknown")))}).Sequence
	// The hash of something that one event keeps elsewhere may be another event's blob.
	l.add(contract.Event{Type: "file.written", Data: json.RawMessage(fmt.Sprintf(`{"path":"a","size":1,"sha256":%q}`, blobRef("both")))})
	want[blobRef("both")] = l.add(contract.Event{Type: "tool.returned", Data: json.RawMessage(fmt.Sprintf(`{"call":"c","output_ref":%q}`, blobRef("both")))}).Sequence
	project(t, s, l)
	got, err := s.NeededBlobs(t.Context())
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%d blobs are needed, want %d (%v)", len(got), len(want), err)
	}
	for ref, seq := range want {
		if got[ref] == 0 {
			t.Errorf("nobody would miss %s, which event %d names", ref, seq)
		}
	}
	for ref := range elsewhere {
		if got[ref] != 0 {
			t.Errorf("%s, a hash of what is kept elsewhere, is taken for a blob", ref)
		}
	}
	if fields < 5 || len(elsewhere) != len(kept) {
		t.Errorf("%d fields of the contract name blobs and %d are kept elsewhere; want %d of those", fields, len(elsewhere), len(kept))
	}
}

// kept are the fields whose hash is of something that is not a blob.
var kept = map[string]bool{
	"FileWritten.SHA256":      true, // the file
	"DocumentRevised.SHA256":  true, // the text beside it
	"DocumentProposed.SHA256": true, // the text beside it
	"ThemeChanged.SHA256":     true, // the theme's file
}

// fieldOf returns the top-level field of a payload that contains a reference.
func fieldOf(v reflect.Value, ref contract.BlobRef) string {
	for i := range v.NumField() {
		if r, ok := v.Field(i).Interface().(contract.BlobRef); ok && r == ref {
			return v.Type().Name() + "." + v.Type().Field(i).Name
		}
	}
	return ""
}

// fillRefs sets every blob reference in a value, after giving each list one element.
func fillRefs(v reflect.Value, name string) {
	switch {
	case v.Type() == reflect.TypeFor[contract.BlobRef]():
		v.SetString(string(blobRef(name)))
	case v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[time.Time]():
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fillRefs(v.Field(i), name+"."+v.Type().Field(i).Name)
			}
		}
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fillRefs(v.Index(0), name+"[]")
	case v.Kind() == reflect.Pointer && v.Type().Elem().Kind() == reflect.Struct:
		v.Set(reflect.New(v.Type().Elem()))
		fillRefs(v.Elem(), name+"*")
	}
}

// TestAnEventThatFailsHalfWayLeavesNothing shows that the changes of an event that failed are
// undone, and those of its neighbours stay.
func TestAnEventThatFailsHalfWayLeavesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.sqlite")
	if err := mustOpen(t, path).Close(); err != nil {
		t.Fatal(err)
	}
	sabotage(t, path, "CREATE TRIGGER refuse BEFORE INSERT ON revisions WHEN NEW.author = 'bad' BEGIN SELECT raise(ABORT, 'refused'); END")
	l := newLog()
	for i, author := range []string{"good", "bad", "good"} {
		l.say(t, "document.revised", &contract.DocumentRevised{Document: contract.DeriveID("d", fmt.Sprint(i)), Title: "t", Path: "artifacts/x.md", Revision: 1, Author: author, SHA256: blobRef(""), Body: ""})
	}
	s := mustOpen(t, path)
	defer s.Close()
	project(t, s, l)
	docs, err := s.Documents(t.Context(), 0)
	if err != nil || len(docs) != 2 {
		t.Errorf("%d documents, %v", len(docs), err)
	}
	var half int
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRow("SELECT count(*) FROM documents").Scan(&half); err != nil || half != 2 {
		t.Errorf("%d rows in documents, want 2: half an event was left (%v)", half, err)
	}
	if poison, err := s.Poison(t.Context(), 0); err != nil || len(poison) != 1 || !strings.Contains(poison[0].Error, "refused") {
		t.Errorf("%+v %v", poison, err)
	}
}

// TestAFullDiskStopsProjection shows that the projection stops with an error when the disk is full,
// and continues where it was when there is room again.
func TestAFullDiskStopsProjection(t *testing.T) {
	l, s := newLog(), newStore(t)
	story(t, l)
	project(t, s, l)
	at := s.Last()
	if err := s.LimitPages(t.Context(), 1); err != nil { // a limit of SQLite's own, which fails as a full disk does
		t.Fatal(err)
	}
	for range 50 {
		doc := contract.NewID()
		body := strings.Repeat("x", 40000)
		l.say(t, "document.revised", &contract.DocumentRevised{Document: doc, Title: "t", Path: "artifacts/x.md", Revision: 1, Author: "a", SHA256: blobRef(body), Body: body})
	}
	if err := s.Recover(t.Context(), l); !fault.Is(err, fault.DiskFull) || fault.HintOf(err) == "" {
		t.Errorf("a full disk gives %v", err)
	}
	if s.Last() != at {
		t.Errorf("the state moved to %d", s.Last())
	}
	if err := s.LimitPages(t.Context(), 1<<30); err != nil {
		t.Fatal(err)
	}
	project(t, s, l)
	if docs, err := s.Documents(t.Context(), 0); err != nil || len(docs) != 51 {
		t.Errorf("%d documents, %v", len(docs), err)
	}
}
