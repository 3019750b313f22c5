package computer

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/computer/runspace"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/document"
	"choir.dev/choiros/internal/document/mirror"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
)

// task is a task that works on an overlay of the desk.
type task struct {
	d  *desk
	o  ports.Overlay
	ws *runspace.Workspace
}

func (d *desk) begin(name string) *task {
	d.t.Helper()
	ws := d.runWorkspace()
	ref := ports.TaskRef{Run: contract.DeriveID("run", name), Task: contract.DeriveID("task", name), Attempt: 1}
	base, err := ws.Checkpoint(d.t.Context(), ref, "before")
	if err != nil {
		d.t.Fatal(err)
	}
	o, err := ws.Begin(d.t.Context(), ref, ports.Start{Base: base})
	if err != nil {
		d.t.Fatal(err)
	}
	return &task{d, o, ws}
}

// write writes a file as the task's programs do.
func (k *task) write(p, text string) {
	k.d.t.Helper()
	file := filepath.Join(k.d.volumes.at(k.d.t, k.o.(*runspace.Overlay).Upper), filepath.FromSlash(p))
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
		k.d.t.Fatal(err)
	}
}

func (k *task) publish() ports.Published {
	k.d.t.Helper()
	k.ws = k.d.runWorkspace()
	p, err := k.ws.Publish(k.d.t.Context(), k.o, ports.Merged{}, contract.VerificationUnknown, false)
	if err != nil {
		k.d.t.Fatal(err)
	}
	return p
}

func (d *desk) open() []view.Proposal {
	d.t.Helper()
	list, _, err := d.proposals().List(d.t.Context(), d.id, false, 0, 100)
	if err != nil {
		d.t.Fatal(err)
	}
	return list
}

// TestATasksConflictingEditIsAProposal: when a task and the user edit the same line of a document's
// file, the user's text stays, and the task's becomes a proposal that says what accepting it would
// change.
func TestATasksConflictingEditIsAProposal(t *testing.T) {
	d := open(t)
	d.create("one\ntwo\nthree\nfour\nfive\n")
	d.settle()
	k := d.begin("a")
	k.write(mirrored, "one\nthe task's\nthree\nfour\nFIVE\n")
	k.write("workspace/other.txt", "published\n")
	d.byHand("one\nmine\nthree\nfour\nfive\n")
	p := k.publish()
	if strings.Join(keptPaths(p.Conflicts), " ") != mirrored || strings.Join(p.Proposed, " ") != mirrored {
		t.Errorf("published %+v", p)
	}
	d.want(2, "one\nmine\nthree\nfour\nfive\n")
	if r := d.head(); r.Author != "person" {
		t.Errorf("the user's edit is by %s", r.Author)
	}
	open := d.open()
	if len(open) != 1 || open[0].Base != 1 || open[0].Author != "associate" || open[0].Task != contract.DeriveID("task", "a") || open[0].Run != contract.DeriveID("run", "a") {
		t.Fatalf("%+v", open)
	}
	// Publishing again, as after a crash, makes the same proposal.
	d.restart()
	if again := k.publish(); strings.Join(again.Proposed, " ") != mirrored || len(d.open()) != 1 {
		t.Errorf("published again: %+v, %d open", again, len(d.open()))
	}
	got, err := d.proposals().Get(t.Context(), d.id, open[0].ID)
	want := "--- a/" + mirrored + "\n+++ b/" + mirrored + "\n@@ -1,5 +1,5 @@\n one\n-mine\n+the task's\n three\n four\n-five\n+FIVE\n"
	if err != nil || got.Diff != want || got.Overlaps != 1 || got.On != 2 || got.Body != "one\nthe task's\nthree\nfour\nFIVE\n" {
		t.Errorf("%+v %v", got, err)
	}
	done, err := d.proposals().Resolve(t.Context(), contract.Person("ana"), d.id, open[0].ID, true)
	if err != nil || done.Revision != 3 || done.Resolution != contract.ProposalAccepted {
		t.Fatalf("%+v %v", done, err)
	}
	d.settle()
	d.want(3, "one\nthe task's\nthree\nfour\nFIVE\n")
	if r := d.head(); r.Author != "ana" || len(d.open()) != 0 {
		t.Errorf("accepted by %s, %d still open", r.Author, len(d.open()))
	}
	if all, _, err := d.proposals().List(t.Context(), d.id, true, 0, 100); err != nil || len(all) != 1 || all[0].Status != "accepted" || all[0].Revision != 3 || all[0].By != "ana" {
		t.Errorf("%+v %v", all, err)
	}
	if closed, err := d.proposals().Get(t.Context(), d.id, open[0].ID); err != nil || closed.Diff != "" || closed.Body == "" {
		t.Errorf("%+v %v", closed, err)
	}
	// What the user writes at that moment becomes a revision before the proposal is made. A text
	// that equals the base is not proposed.
	d.byHand("one\nfaster\n")
	ref := k.o.(*runspace.Overlay).Ref
	by := document.Author{Name: string(contract.KindAssociate), By: contract.AssociateOf(ref.Task), Run: ref.Run, Task: ref.Task}
	if p, err := d.mirror.Propose(t.Context(), mirror.Unapplied{Publish: "faster", Base: k.o.Base(), Tree: k.o.Base(), Paths: []string{mirrored}, By: by}); err != nil || len(p) != 0 {
		t.Errorf("%v %v", p, err)
	}
	d.want(4, "one\nfaster\n")
}

// TestWhichConflictsAreProposals shows that a text that is too long, or no text, or no document's
// makes no proposal, and that one for a file that the user removed, or for one that has changed
// only in the log, does.
func TestWhichConflictsAreProposals(t *testing.T) {
	d := open(t)
	d.create("one\n")
	d.settle()
	for name, body := range map[string]string{"binary": "a\x00b", "not UTF-8": "\xff\xfe"} {
		k := d.begin(name)
		k.write(mirrored, body)
		d.byHand(d.text() + "mine\n")
		if p := k.publish(); strings.Join(keptPaths(p.Conflicts), " ") != mirrored || len(p.Proposed) != 0 || len(d.open()) != 0 {
			t.Errorf("%s: %+v", name, p)
		}
	}
	k := d.begin("no document")
	k.write("artifacts/note.md", "its\n")
	if err := os.WriteFile(filepath.Join(d.dir, "workspace", "artifacts", "note.md"), []byte("mine\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if p := k.publish(); strings.Join(keptPaths(p.Conflicts), " ") != "artifacts/note.md" || len(p.Proposed) != 0 {
		t.Errorf("no document: %+v", p)
	}
	k = d.begin("removed")
	text := d.text()
	k.write(mirrored, text+"its\n")
	if err := os.Remove(d.file()); err != nil {
		t.Fatal(err)
	}
	if p := k.publish(); strings.Join(p.Proposed, " ") != mirrored {
		t.Errorf("removed by the user: %+v", p)
	}
	open := d.open()
	if len(open) != 1 || d.text() != "" {
		t.Fatalf("%+v, the file holds %q", open, d.text())
	}
	if got, err := d.proposals().Get(t.Context(), d.id, open[0].ID); err != nil || got.Overlaps != 0 {
		t.Errorf("%+v %v", got, err)
	}
	if _, err := d.proposals().Resolve(t.Context(), contract.Person("ana"), d.id, open[0].ID, false); err != nil {
		t.Fatal(err)
	}
	if _, err := d.proposals().Resolve(t.Context(), contract.Person("ana"), d.id, open[0].ID, true); !fault.Is(err, fault.Conflict) {
		t.Errorf("accepted what was dismissed: %v", err)
	}

	// The file follows the log later, so the task saw only the older text.
	d.byHand("one\ntwo\n")
	d.settle()
	d.busy.Store(true)
	k = d.begin("behind")
	k.write(mirrored, "one\nits\n")
	d.revise("one\nthe director's\n", director)
	if p := k.publish(); len(p.Conflicts) != 0 {
		t.Fatalf("%+v", p)
	}
	if open = d.open(); len(open) != 1 || open[0].Task != contract.DeriveID("task", "behind") {
		t.Fatalf("%+v", open)
	}
	if r := d.head(); r.Body != "one\nthe director's\n" || d.text() != r.Body {
		t.Errorf("revision %d says %q, the file %q", r.Revision, r.Body, d.text())
	}
}

func keptPaths(kept []view.Kept) []string {
	out := make([]string, len(kept))
	for i, k := range kept {
		out[i] = k.Path
	}
	return out
}
