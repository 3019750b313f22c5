package computer

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/document"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/internal/workspace"
)

var errDied = errors.New("the process died")

// director is the author of runs' documents.
var director = document.Author{Name: string(contract.KindDirector), By: contract.DirectorOf("")}

const mirrored = "artifacts/runs/plan.md"

var edits atomic.Int64

func TestRevisionsReachTheFileAndEditsTheDocument(t *testing.T) {
	d := open(t)
	d.create("one\n")
	d.settle()
	d.want(1, "one\n")
	d.byHand("one\nby hand\n")
	d.settle()
	d.want(2, "one\nby hand\n")
	if r := d.head(); r.Author != "person" {
		t.Errorf("the edit is by %s", r.Author)
	}
	// The mirror does not take its own writes for edits, now or after a restart.
	d.settle()
	d.restart()
	d.settle()
	d.want(2, "one\nby hand\n")
	// An agent writes while the user edits the file elsewhere: both changes stay.
	d.revise("zero\none\nby hand\n", director)
	d.byHand("one\nby hand\nmore\n")
	d.settle()
	if got := d.text(); got != "zero\none\nby hand\nmore\n" || d.head().Body != got {
		t.Errorf("merged %q, document %q", got, d.head().Body)
	}
	// If both change the same line, the user's text wins, whoever was last.
	d.revise("agent\none\nby hand\nmore\n", director)
	d.byHand("user\none\nby hand\nmore\n")
	d.settle()
	if got := d.text(); got != "user\none\nby hand\nmore\n" || d.head().Body != got {
		t.Errorf("the user wrote %q, document %q", got, d.head().Body)
	}
}

func TestACrashBetweenFileAndLogIsNoEdit(t *testing.T) {
	d := open(t)
	d.create("one\n")
	d.settle()
	d.revise("two\n", director)
	d.dies.Store(true)
	d.settle()
	if d.text() != "two\n" {
		t.Fatalf("the file holds %q", d.text())
	}
	before := d.log.Last()
	d.dies.Store(false)
	d.restart()
	d.revise("three\n", director)
	d.settle()
	d.want(3, "three\n")
	if d.mirror.Seq() < before {
		t.Errorf("mirrored up to %d, before the crash it was at %d", d.mirror.Seq(), before)
	}
}

// TestWhoWritesARevisionHasItInTheFile shows that a person's revision is in the file when it is
// acknowledged, after anything that the file contained and nobody had seen, and that neither a
// crash before the event that says so, nor an edit of the file meanwhile, loses anything.
func TestWhoWritesARevisionHasItInTheFile(t *testing.T) {
	d := open(t)
	d.create("one\n")
	d.settle()
	me := document.By(contract.Person("me"))
	write := func(base int, text string) state.Revision {
		t.Helper()
		r, err := d.mirror.Revise(t.Context(), d.id, base, text, me)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := write(1, "one\ntwo\n"); r.Revision != 2 || r.Author != "me" {
		t.Errorf("%+v", r)
	}
	d.want(2, "one\ntwo\n")
	before := d.log.Last()
	write(2, "one\ntwo\nthree\n")
	if n := d.log.Last() - before; n != 1 {
		t.Errorf("whoever writes a revision waits for %d events", n)
	}
	d.want(3, "one\ntwo\nthree\n")
	// Reading it, or a restart, makes no edit of it.
	d.dies.Store(true)
	d.settle()
	d.restart()
	d.dies.Store(false)
	d.settle()
	d.want(3, "one\ntwo\nthree\n")
	// An edit of the file that was not seen yet counts as the older one.
	d.byHand("zero\none\ntwo\nthree\n")
	write(3, "one\ntwo\nthree\nfour\n")
	d.want(5, "zero\none\ntwo\nthree\nfour\n")
	// An edit right after the write is based on it, so the two do not conflict.
	write(5, "zero\none\n")
	d.byHand("0\none\n")
	d.settle()
	d.want(7, "0\none\n")
	// If others changed the same lines since, the conflict is reported and nothing is changed.
	var conflict *document.ConflictError
	if _, err := d.mirror.Revise(t.Context(), d.id, 5, "null\none\n", me); !errors.As(err, &conflict) || conflict.Current.Revision != 7 {
		t.Errorf("over a newer revision: %v", err)
	}
	d.want(7, "0\none\n")
	// A file that was removed right after the write stays removed over a restart.
	write(7, "last\n")
	if err := os.Remove(d.file()); err != nil {
		t.Fatal(err)
	}
	d.settle()
	d.restart()
	d.settle()
	if d.text() != "" {
		t.Errorf("a file that was removed holds %q again", d.text())
	}
	if _, err := d.mirror.Revise(t.Context(), contract.NewID(), 1, "x", me); !fault.Is(err, fault.NotFound) {
		t.Errorf("a revision of no document: %v", err)
	}
	if list, err := d.workspace.Trash(t.Context(), "", 0); err != nil || len(list.Items) != 0 {
		t.Errorf("what the log holds is in the trash: %+v, %v", list.Items, err)
	}
}

// TestARevisionDoesNotChangeWhatIsVerified shows that a revision of a run's document is in the log
// at once, and in its file only when no run is under way.
func TestARevisionDoesNotChangeWhatIsVerified(t *testing.T) {
	d := open(t)
	d.create("one\n")
	d.settle()
	d.busy.Store(true)
	if r, err := d.mirror.Revise(t.Context(), d.id, 1, "two\n", document.By(contract.Person("me"))); err != nil || r.Revision != 2 || d.text() != "one\n" {
		t.Errorf("%+v, %v; the file holds %q", r, err, d.text())
	}
	d.busy.Store(false)
	d.settle()
	d.want(2, "two\n")
}

// TestRevisionsWithTheirText shows that revisions are listed with their text, newest first, a page
// at a time.
func TestRevisionsWithTheirText(t *testing.T) {
	d := open(t)
	d.create("1\n")
	for _, text := range []string{"2\n", "3\n", strings.Repeat("long\n", view.MaxText/5) + "long"} {
		d.revise(text, director)
	}
	type page struct {
		before, limit int
		want          string
		more          bool
	}
	for _, p := range []page{{0, 10, "4", true}, {4, 10, "3 2 1", false}, {4, 2, "3 2", true}, {1, 10, "", false}} {
		list, more, err := d.Revisions(t.Context(), d.id, p.before, p.limit)
		var got []string
		for _, r := range list {
			got = append(got, fmt.Sprint(r.Revision))
			if r.ID != d.id || r.Body == "" || r.Path != mirrored || r.Time.IsZero() || r.Revision < 4 && r.Body != fmt.Sprintln(r.Revision) {
				t.Errorf("%+v", r)
			}
		}
		if err != nil || strings.Join(got, " ") != p.want || more != p.more {
			t.Errorf("%+v: %v, more %t, %v", p, got, more, err)
		}
	}
	if _, _, err := d.Revisions(t.Context(), contract.NewID(), 0, 10); !fault.Is(err, fault.NotFound) {
		t.Errorf("of no document: %v", err)
	}
}

func TestAnOlderTextIsARevision(t *testing.T) {
	d := open(t)
	d.create("one\n")
	d.settle()
	d.revise("two\n", director)
	d.settle()
	d.byHand("one\n") // as a restore does, and then the process dies
	d.restart()
	d.settle()
	d.want(3, "one\n")
	// The same holds for a revision that came from the file, of which there is no other record in
	// the file system.
	d.byHand("one\nby hand\n")
	d.settle()
	d.restart()
	d.byHand("one\n")
	d.settle()
	d.want(5, "one\n")
}

func TestTheUserIsFasterThanTheMirror(t *testing.T) {
	d := open(t)
	d.create("one\n")
	d.settle()
	d.revise("one\nagent\n", director)
	d.beforeWrite = func() { d.beforeWrite = func() {}; d.byHand("user\none\n") }
	d.settle()
	if got := d.text(); got != "user\none\nagent\n" || d.head().Body != got {
		t.Errorf("the file holds %q, the document %q", got, d.head().Body)
	}
}

func TestDocumentsOfRunsWaitWhileOneIsUnderWay(t *testing.T) {
	d := open(t)
	d.busy.Store(true)
	d.create("one\n")
	created := d.head().Seq
	d.settle()
	if d.text() != "" || d.mirror.Seq() >= created {
		t.Errorf("the file holds %q; mirrored up to %d, the revision is %d", d.text(), d.mirror.Seq(), created)
	}
	k, err := d.workspace.Checkpoint(t.Context(), workspace.CheckpointRequest{Kind: contract.CheckpointBefore, Message: "before", Force: true})
	if err != nil || k.Seq >= created {
		t.Errorf("a checkpoint without the revision names %d: %v", k.Seq, err)
	}
	d.mirror.Freshen(t.Context(), mirrored)
	d.want(1, "one\n")
	d.revise("two\n", director)
	d.settle()
	if d.text() != "one\n" {
		t.Errorf("the file holds %q", d.text())
	}
	d.busy.Store(false)
	d.settle()
	d.want(2, "two\n")
	if d.mirror.Seq() < d.head().Seq {
		t.Errorf("mirrored up to %d, the revision is %d", d.mirror.Seq(), d.head().Seq)
	}
}

func TestWhatTheUserRemovedOrReplacedIsLeftAlone(t *testing.T) {
	d := open(t)
	d.create("one\n")
	d.settle()
	if err := os.Remove(d.file()); err != nil {
		t.Fatal(err)
	}
	d.settle()
	d.restart()
	d.settle()
	d.mirror.Freshen(t.Context(), mirrored)
	if _, err := os.Stat(d.file()); err == nil {
		t.Error("a removed file came back by itself")
	}
	d.revise("two\n", director)
	d.settle()
	d.want(2, "two\n")
	d.byHand("\x00\xff")
	d.settle()
	if r := d.head(); r.Revision != 2 || d.text() != "\x00\xff" {
		t.Errorf("revision %d, the file holds %q", r.Revision, d.text())
	}
	if d.mirror.Seq() < d.head().Seq {
		t.Error("a file that can't be a document holds the mirror up for ever")
	}
	d.byHand("text again\n")
	d.settle()
	d.want(3, "text again\n")
}

// TestARestoreOfEverythingLeavesDocumentsAlone shows that a restore of everything leaves documents
// alone, because the log decides what they say, and that a restore that names a document's file
// restores the document.
func TestARestoreOfEverythingLeavesDocumentsAlone(t *testing.T) {
	d := open(t)
	note := filepath.Join(d.dir, "workspace", "note.txt")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(note, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	mark := func() string {
		t.Helper()
		k, err := d.workspace.Checkpoint(t.Context(), workspace.CheckpointRequest{Kind: contract.CheckpointManual, Message: "mark", Force: true})
		if err != nil {
			t.Fatal(err)
		}
		return k.Commit
	}
	back := func(req view.RestoreRequest, want ...string) {
		t.Helper()
		req.By = contract.Person("ana")
		for _, req.DryRun = range []bool{true, false} {
			r, err := d.Restore(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			got := []string{}
			for _, k := range r.Changes {
				got = append(got, k.Path)
			}
			if strings.Join(got, " ") != strings.Join(want, " ") {
				t.Errorf("with dry run %v it changes %q; want %q", req.DryRun, got, want)
			}
		}
		d.settle()
	}
	write("before\n")
	before := mark()
	d.create("one\n")
	d.settle()
	write("meanwhile\n")
	old := mark()
	d.revise("two\n", director)
	d.settle()
	write("after\n")

	// It goes neither to before the document existed, nor to its older text, nor back again.
	back(view.RestoreRequest{To: before}, "note.txt")
	d.want(2, "two\n")
	back(view.RestoreRequest{To: old}, "note.txt")
	back(view.RestoreRequest{Undo: true}, "note.txt")
	d.want(2, "two\n")
	// An edit that is not in the log yet becomes a revision first, and stays too.
	d.byHand("two\nby hand\n")
	back(view.RestoreRequest{To: old}, "note.txt")
	d.want(3, "two\nby hand\n")
	// A revision that waits for its file is left alone as well.
	d.busy.Store(true)
	d.revise("four\n", director)
	r, err := d.Restore(t.Context(), view.RestoreRequest{To: before, DryRun: true})
	if err != nil || len(r.Changes) != 1 || r.Changes[0].Path != "note.txt" {
		t.Errorf("while a run is under way it would change %v: %v", r.Changes, err)
	}
	d.busy.Store(false)
	d.settle()
	d.want(4, "four\n")

	// If it is named, it goes back to an older text, and is removed.
	back(view.RestoreRequest{To: old, Paths: []string{mirrored}}, mirrored)
	d.want(5, "one\n")
	back(view.RestoreRequest{Undo: true}, mirrored)
	d.want(6, "four\n")
	back(view.RestoreRequest{To: before, Paths: []string{"artifacts"}}, "artifacts/", mirrored) // at that time an empty folder
	if r := d.head(); r.Revision != 6 || d.text() != "" {
		t.Errorf("revision %d, the file holds %q", r.Revision, d.text())
	}
	back(view.RestoreRequest{Undo: true}, "artifacts/", mirrored)
	d.want(6, "four\n")

	// A file that is no longer a document is like any other file.
	d.byHand("\x00\xff")
	d.settle()
	back(view.RestoreRequest{To: old}, mirrored)
	d.want(7, "one\n")
}

// TestMirrorLaws shows that whoever writes what and where, with crashes in between, document and
// file end equal, and that no line that a person wrote is lost without being in a revision.
func TestMirrorLaws(t *testing.T) {
	// Each check opens a log and a tree: 15 by default, more with -rapid.checks.
	if f := flag.Lookup("rapid.checks"); f != nil && f.Value.String() == f.DefValue {
		if err := flag.Set("rapid.checks", "15"); err != nil {
			t.Fatal(err)
		}
	}
	b, blobs := newBus(t)
	rapid.Check(t, func(rt *rapid.T) {
		d := newDesk(t, b, blobs)
		defer d.end()
		d.create("one\ntwo\nthree\n")
		d.settle()
		var users []string
		for i := range rapid.IntRange(1, 8).Draw(rt, "steps") {
			line := fmt.Sprintf("line %d\n", i)
			insert := func(s string) string {
				lines := strings.SplitAfter(s, "\n")
				at := rapid.IntRange(0, len(lines)-1).Draw(rt, "at")
				cut := at
				if cut < len(lines)-1 && rapid.Bool().Draw(rt, "replace") {
					cut++
				}
				return strings.Join(lines[:at], "") + line + strings.Join(lines[cut:], "")
			}
			switch rapid.SampledFrom([]string{"agent", "user", "hand", "hand", "settle", "restart", "crash", "busy"}).Draw(rt, "step") {
			case "agent":
				d.revise(insert(d.head().Body), director)
			case "user":
				d.revise(insert(d.head().Body), document.By(contract.Person("ana")))
				users = append(users, line)
			case "hand":
				if text := d.text(); text != "" {
					d.byHand(insert(text))
					users = append(users, line)
					d.settle() // a second save within the same second replaces the first
				}
			case "settle":
				d.settle()
			case "restart":
				d.restart()
			case "crash":
				d.dies.Store(true)
				d.settle()
				d.dies.Store(false)
				d.restart()
			case "busy":
				d.busy.Store(!d.busy.Load())
			}
		}
		d.busy.Store(false)
		d.settle()
		d.settle()
		if d.head().Body != d.text() {
			rt.Fatalf("the document says\n%s\nthe file\n%s", d.head().Body, d.text())
		}
		n := d.head().Revision
		d.restart()
		d.settle()
		if d.head().Revision != n {
			rt.Fatalf("mirroring made revision %d of %d", d.head().Revision, n)
		}
		var all strings.Builder
		for i := 1; i <= n; i++ {
			r, err := d.documents.Revision(t.Context(), d.id, i)
			if err != nil {
				rt.Fatal(err)
			}
			all.WriteString(r.Body)
		}
		for _, line := range users {
			if !strings.Contains(all.String(), line) {
				rt.Fatalf("what the user wrote, %q, is in no revision:\n%s", line, all.String())
			}
		}
	})
}
