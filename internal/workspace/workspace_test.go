package workspace_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

const cid contract.CID = "abcdefgh12345678"

// TestWhatATaskInstalledIsTold shows that what a task puts into an ignored directory is not
// published, and that this is told.
func TestWhatATaskInstalledIsTold(t *testing.T) {
	h := newHost(t)
	h.write(".gitignore", "node_modules/\n")
	h.write("workspace/p/node_modules/a/index.js", "mine\n")
	h.write("workspace/q/node_modules/a/index.js", "mine\n")
	o, err := h.Begin(t.Context(), "task-1", "")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := h.Installed(t.Context(), o, nil); err != nil || len(got) != 0 {
		t.Fatalf("before: %v, %v", got, err)
	}
	for _, ig := range o.Ignored {
		if ig.Path == "workspace/q/node_modules" {
			write(t, filepath.Join(h.at(ig.Upper), "b/index.js"), "task's\n")
		}
	}
	if got, err := h.Installed(t.Context(), o, nil); err != nil || len(got) != 1 || got[0] != "workspace/q/node_modules" {
		t.Fatalf("%v, %v", got, err)
	}
	// Where the user has nothing, an ignored folder is not published either.
	write(t, filepath.Join(h.at(o.Upper), "workspace/new/node_modules/b/index.js"), "task's\n")
	write(t, filepath.Join(h.at(o.Upper), "workspace/kept/vendor/b/b.go"), "package b\n")
	if err := os.MkdirAll(filepath.Join(h.at(o.Upper), "workspace/new/sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", filepath.Join(h.at(o.Upper), "workspace/new/sub/node_modules")); err != nil {
		t.Fatal(err)
	}
	changed := []wire.Change{{Path: "workspace/new/package.json"}, {Path: "workspace/new/sub/a.js"}, {Path: "workspace/kept/vendor/b/b.go"}}
	if got, err := h.Installed(t.Context(), o, changed); err != nil || !slices.Equal(got, []string{"workspace/new/node_modules", "workspace/q/node_modules"}) {
		t.Fatalf("%v, %v", got, err)
	}
}

// TestWhatATaskInstalledIsToldOfManyLongFolders shows that folders into which a task put something
// are told however many there are and however long their names, which the task chooses, and that
// they make nothing fail.
func TestWhatATaskInstalledIsToldOfManyLongFolders(t *testing.T) {
	h := newHost(t)
	o, err := h.Begin(t.Context(), "task-1", "")
	if err != nil {
		t.Fatal(err)
	}
	long := "workspace" + strings.Repeat("/"+strings.Repeat("\x01", 250), 10) // JSON writes each of these bytes as six
	var changed []wire.Change
	for i := range 450 {
		changed = append(changed, wire.Change{Path: wire.Path(fmt.Sprintf("%s/%d/a.js", long, i))})
	}
	changed = append(changed, wire.Change{Path: wire.Path("workspace" + strings.Repeat("/deep", 1000) + "/a.js")})
	want := []string{long + "/0/node_modules", long + "/449/vendor"}
	for _, p := range want {
		write(t, filepath.Join(h.at(o.Upper), p, "b/index.js"), "task's\n")
	}
	if got, err := h.Installed(t.Context(), o, changed); err != nil || !slices.Equal(got, want) {
		t.Fatalf("%d folders, %v", len(got), err)
	}
	// A change of what a verification depends on does not make a publish fail either: the task is
	// verified again.
	var scope []string
	for _, c := range changed {
		scope = append(scope, string(c.Path))
	}
	h.write("workspace/a.txt", "one\n")
	write(t, filepath.Join(h.at(o.Upper), "workspace/b.txt"), "two\n")
	tree, err := h.Tree(t.Context(), o, "", "", "")
	if err != nil {
		t.Fatal(err)
	}
	p, err := h.Publish(t.Context(), workspace.PublishRequest{ID: contract.NewID(), Overlay: o, Tree: tree.Commit, VerifiedTree: tree.Tree, Scope: scope})
	if err != nil || p.Reverify == "" {
		t.Fatalf("%+v, %v", p, err)
	}
}

// TestAVerificationHoldsWithinItsScope shows that a verification stays valid when others change
// files elsewhere, and not when they change files that it depends on.
func TestAVerificationHoldsWithinItsScope(t *testing.T) {
	for name, c := range map[string]struct {
		scope    []string
		change   string
		reverify bool
	}{
		"a log elsewhere":            {[]string{"workspace/p"}, "workspace/log.txt", false},
		"a name that only begins so": {[]string{"workspace/p"}, "workspace/pp/x", false},
		"in the project":             {[]string{"workspace/p"}, "workspace/p/x", true},
		"what it names outside":      {[]string{"workspace/p", "workspace/lib"}, "workspace/lib/x", true},
		"a scope nobody knows":       {nil, "workspace/log.txt", true},
		"the whole workspace":        {[]string{"."}, "workspace/log.txt", true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			o, err := h.Begin(t.Context(), "task-1", "")
			if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(h.at(o.Upper), "workspace/p/a"), "task\n")
			tree, err := h.Tree(t.Context(), o, "work", "", "")
			if err != nil {
				t.Fatal(err)
			}
			h.write(c.change, "another's\n")
			p, err := h.Publish(t.Context(), workspace.PublishRequest{ID: "pub-1", Overlay: o, Tree: tree.Commit, VerifiedTree: tree.Tree, Scope: c.scope,
				Message: "The task", Run: contract.NewID(), Task: contract.NewID()})
			if err != nil || (p.Reverify != "") != c.reverify {
				t.Fatalf("%+v %v", p, err)
			}
			if c.reverify {
				return
			}
			if got := h.live("workspace/p/a") + h.live(c.change); got != "task\nanother's\n" {
				t.Errorf("live has %q", got)
			}
		})
	}
}

func TestATaskFromBeginToPublish(t *testing.T) {
	h := newHost(t)
	ctx := t.Context()
	if got := h.log.types(); got != "checkpoint.created" {
		t.Fatalf("a new computer's log: %s", got)
	}
	h.log.reset()
	o, err := h.Begin(ctx, "task-1", "")
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(inLayers(h.at, o.Lower, "workspace/a")); err != nil || string(b) != "a\n" {
		t.Fatalf("lower holds %q, %v", b, err)
	}
	write(t, filepath.Join(h.at(o.Upper), "workspace/a"), "task\n")
	tree, err := h.Tree(ctx, o, "work", "", "")
	if err != nil {
		t.Fatal(err)
	}
	h.write("workspace/user", "user\n")
	run := contract.NewID()
	req := workspace.PublishRequest{ID: "pub-1", Overlay: o, Tree: tree.Commit, VerifiedTree: tree.Tree, Message: "The task", Run: run, Task: contract.NewID()}
	p, err := h.Publish(ctx, req)
	if err != nil || p.Reverify == "" || h.live("workspace/a") != "a\n" {
		t.Fatalf("the merge is not what was verified, yet: %+v, %v", p, err)
	}
	layers, err := h.Snapshot(ctx, p.Reverify)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(inLayers(h.at, layers, "workspace/user")); err != nil || string(b) != "user\n" {
		t.Fatalf("the tree to verify lacks the user's file: %q, %v", b, err)
	}
	toVerify := p.Reverify
	req.VerifiedTree = p.MergedTree
	p, err = h.Publish(ctx, req)
	if err != nil || p.Commit == "" || h.live("workspace/a")+h.live("workspace/user") != "task\nuser\n" {
		t.Fatalf("publish = %+v, %v", p, err)
	}
	if got, want := h.log.types(), "checkpoint.created publish.started checkpoint.created publish.finished"; got != want {
		t.Errorf("log: %s\nwant %s", got, want)
	}
	list, err := h.Checkpoints(ctx, "", 1)
	if err != nil || list[0].Commit != p.Commit || list[0].Verified != "pass" || list[0].Run != run || list[0].Seq != 7 || list[0].Kind != contract.CheckpointTask {
		t.Errorf("checkpoints = %+v, %v", list, err)
	}
	again, err := h.Publish(ctx, req)
	if err != nil || again.Commit != p.Commit {
		t.Errorf("again = %+v, %v", again, err)
	}
	if err := h.Drop(ctx, o); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(filepath.Join(h.dir, "boxes")); err != nil || len(left) > 0 {
		t.Errorf("overlays left: %v, %v", left, err)
	}
	if err := h.Release(ctx, toVerify); err != nil {
		t.Error(err)
	}
	left, err := os.ReadDir(filepath.Join(h.dir, "snapshots"))
	if err != nil || len(left) > 4 {
		t.Errorf("snapshots left: %v, %v", left, err)
	}
}

// TestIgnoredDirectoriesKeepTheirLayers shows that an ignored directory keeps its own layers,
// whatever else is installed while a task works. When they were keyed by position, one directory
// got those of another.
func TestIgnoredDirectoriesKeepTheirLayers(t *testing.T) {
	h := newHost(t)
	h.write(".gitignore", "node_modules/\n")
	h.write("workspace/b/node_modules/dep", "b\n")
	before, err := h.Begin(t.Context(), "task-1", "")
	if err != nil {
		t.Fatal(err)
	}
	h.write("workspace/a.d/node_modules/dep", "a\n")
	after, err := h.Begin(t.Context(), "task-1", before.Base)
	if err != nil {
		t.Fatal(err)
	}
	layers := func(o workspace.Overlay, p string) workspace.IgnoredDir {
		i := slices.IndexFunc(o.Ignored, func(d workspace.IgnoredDir) bool { return d.Path == p })
		if i < 0 {
			t.Fatalf("%s is not among %+v", p, o.Ignored)
		}
		return o.Ignored[i]
	}
	b := layers(before, "workspace/b/node_modules")
	if got := layers(after, "workspace/b/node_modules"); got != b {
		t.Errorf("b's layers were %+v and are %+v", b, got)
	}
	if a := layers(after, "workspace/a.d/node_modules"); a.Upper == b.Upper {
		t.Errorf("a got b's layers: %+v", a)
	}
}

// TestAComputerWithADamagedHistoryStarts shows that a computer starts although its history is
// damaged, and that the checkpoint from which it goes on tells what was damaged, as does a scrub.
func TestAComputerWithADamagedHistoryStarts(t *testing.T) {
	h := newHost(t)
	ctx := t.Context()
	h.write("workspace/a", "two\n")
	second, err := h.Checkpoint(ctx, workspace.CheckpointRequest{})
	if err != nil {
		t.Fatal(err)
	}
	h.write("workspace/a", "three\n")
	h.end()
	object := filepath.Join(h.dir, "workspace/.git/objects", second.Commit[:2], second.Commit[2:])
	if err := os.Remove(object); err != nil {
		t.Fatal(err)
	}
	h.log.reset()
	h.start()
	list, err := h.Checkpoints(ctx, "", 1)
	if err != nil || len(list) != 1 || !strings.Contains(list[0].Message, second.Commit[:12]) || list[0].Parent != second.Parent || h.live("workspace/a") != "three\n" {
		t.Fatalf("after damage: %+v, %v", list, err)
	}
	if got := h.log.types(); got != "checkpoint.created" {
		t.Errorf("log: %s", got)
	}
	id, err := h.ObjectID(ctx, "", "workspace/a")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(h.dir, "workspace/.git/objects", id[:2], id[2:])); err != nil {
		t.Fatal(err)
	}
	r, err := h.Scrub(ctx, workspace.ScrubBudget{Time: time.Minute})
	if err != nil || !r.Done || len(r.Damaged) != 1 || r.Damaged[0].Healed == "" || !strings.HasPrefix(r.Damaged[0].Text(), "workspace/a in checkpoint ") {
		t.Errorf("scrub: %+v, %v", r, err)
	}
}

// TestEventsOfCheckpointsFollowTheirCause shows that the event of a checkpoint is not dated before
// its cause, although git dates commits in whole seconds.
func TestEventsOfCheckpointsFollowTheirCause(t *testing.T) {
	h := newHost(t)
	for i := range 5 {
		if _, err := h.Write(t.Context(), "workspace/a", strings.NewReader(strings.Repeat("x", i)), workspace.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Checkpoint(t.Context(), workspace.CheckpointRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := h.Checkpoints(t.Context(), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	times := map[string]time.Time{}
	for _, c := range list {
		times[c.Commit] = c.Time
	}
	var last contract.Event
	for _, e := range h.log.all() {
		if e.Time.Before(last.Time) {
			t.Errorf("%s of %v follows %s of %v", e.Type, e.Time, last.Type, last.Time)
		}
		if at, ok := times[strings.TrimPrefix(e.Subject, "checkpoint/")]; ok && !at.Equal(e.Time) {
			t.Errorf("the event says %v and the history %v", e.Time, at)
		}
		last = e
	}
}

func TestRestoreAndUndoAreLogged(t *testing.T) {
	h := newHost(t)
	ctx := t.Context()
	list, err := h.Checkpoints(ctx, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	h.write("workspace/a", "changed\n")
	h.log.reset()
	dry, err := h.Restore(ctx, workspace.RestoreRequest{To: list[0].Commit, DryRun: true})
	if err != nil || len(dry.Changes) != 1 || h.live("workspace/a") != "changed\n" || h.log.types() != "" {
		t.Fatalf("dry run = %+v, %v, %s", dry, err, h.log.types())
	}
	r, err := h.Restore(ctx, workspace.RestoreRequest{To: list[0].Commit, Paths: []string{"workspace"}, By: contract.Person("someone")})
	if err != nil || h.live("workspace/a") != "a\n" {
		t.Fatalf("restore = %+v, %v", r, err)
	}
	if got, want := h.log.types(), "checkpoint.created checkpoint.created checkpoint.restored"; got != want {
		t.Errorf("log: %s, want %s", got, want)
	}
	if _, err := h.Undo(ctx, workspace.RestoreRequest{}); err != nil || h.live("workspace/a") != "changed\n" {
		t.Fatalf("undo: %v, %q", err, h.live("workspace/a"))
	}
	if _, err := h.Undo(ctx, workspace.RestoreRequest{}); err != nil || h.live("workspace/a") != "a\n" {
		t.Fatalf("undo of undo: %v, %q", err, h.live("workspace/a"))
	}
	n := len(h.log.events)
	h.restart()
	if len(h.log.events) != n {
		t.Errorf("a restart appended again: %s", h.log.types())
	}
	if _, err := h.Restore(ctx, workspace.RestoreRequest{To: "0123456789"}); !fault.Is(err, fault.NotFound) || fault.HintOf(err) == "" {
		t.Errorf("unknown checkpoint: %v", err)
	}
}

// TestTheLogCatchesUp refuses each append in turn, as if the host died there, and starts again.
// Afterwards everything durable must have its event, once.
func TestTheLogCatchesUp(t *testing.T) {
	for n := range 10 {
		refuse, goesOn := 1+n/2, n%2 == 1
		h := newHost(t)
		ctx := t.Context()
		o, err := h.Begin(ctx, "task-1", "")
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(h.at(o.Upper), "workspace/a"), "task\n")
		tree, err := h.Tree(ctx, o, "work", "", "")
		if err != nil {
			t.Fatal(err)
		}
		h.write("workspace/user", "user\n")
		seen := 0
		h.log.fail = func(contract.Draft) error {
			if seen++; seen >= refuse {
				return errors.New("the log is gone")
			}
			return nil
		}
		_, err = h.Publish(ctx, workspace.PublishRequest{ID: "pub-1", Overlay: o, Tree: tree.Commit, Message: "The task"})
		if (err == nil) != (refuse > 7) && seen >= refuse && err == nil {
			t.Errorf("refusing append %d (it goes on: %v): no error", refuse, goesOn)
		}
		h.log.fail = nil
		if !goesOn {
			h.restart()
		}
		if _, err := h.Publish(ctx, workspace.PublishRequest{ID: "pub-1", Overlay: o, Tree: tree.Commit, Message: "The task"}); err != nil {
			t.Fatalf("refusing append %d (it goes on: %v): %v", refuse, goesOn, err)
		}
		if h.live("workspace/a")+h.live("workspace/user") != "task\nuser\n" {
			t.Errorf("refusing append %d (it goes on: %v): the tree is wrong", refuse, goesOn)
		}
		list, err := h.Checkpoints(ctx, "", 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range list {
			n := 0
			for _, e := range h.log.events {
				if e.Type == "checkpoint.created" && strings.Contains(string(e.Data), `"commit":"`+c.Commit+`"`) {
					n++
				}
			}
			if n != 1 {
				t.Errorf("refusing append %d (it goes on: %v): checkpoint %s (%s) has %d events", refuse, goesOn, c.Commit[:8], c.Message, n)
			}
		}
		if got := h.log.types(); strings.Count(got, "publish.finished") != 1 || strings.Count(got, "publish.started") != 1 {
			t.Errorf("refusing append %d (it goes on: %v): %s", refuse, goesOn, got)
		}
	}
}

// halfway is a keeper of which an answer is lost, as if it had failed after it had made something.
type halfway struct {
	wire.Keeper
	verb *string
}

func (k halfway) Call(ctx context.Context, verb string, in, out any) error {
	err := k.Keeper.Call(ctx, verb, in, out)
	if verb == *k.verb {
		return errors.Join(err, errLost)
	}
	return err
}

// TestWhatAFailedCallMadeIsInTheLog loses the answer to each change of the tree. The next call
// finds nothing to do, and appends to the log what was made.
func TestWhatAFailedCallMadeIsInTheLog(t *testing.T) {
	for verb, do := range map[string]func(h *host, first string) error{
		"checkpoint": func(h *host, _ string) error {
			_, err := h.Checkpoint(t.Context(), workspace.CheckpointRequest{Kind: contract.CheckpointManual, Message: "two"})
			return err
		},
		"restore": func(h *host, first string) error {
			_, err := h.Restore(t.Context(), workspace.RestoreRequest{To: first})
			return err
		},
		"move": func(h *host, _ string) error {
			return h.Move(t.Context(), "workspace/a", "workspace/b", contract.Person(""))
		},
	} {
		h := newHost(t)
		lose := ""
		h.wrap = func(k wire.Keeper) wire.Keeper { return halfway{k, &lose} }
		h.restart()
		list, err := h.Checkpoints(t.Context(), "", 1)
		if err != nil {
			t.Fatal(err)
		}
		h.write("workspace/a", "two\n")
		lose = verb
		if err := do(h, list[0].Commit); !errors.Is(err, errLost) {
			t.Fatalf("%s: %v", verb, err)
		}
		lose = ""
		if _, err := h.Checkpoint(t.Context(), workspace.CheckpointRequest{}); err != nil {
			t.Fatal(err)
		}
		if list, err = h.Checkpoints(t.Context(), "", 0); err != nil {
			t.Fatal(err)
		}
		events := map[string]bool{}
		for _, e := range h.log.all() {
			events[e.Subject] = true
		}
		for _, c := range list {
			if !events["checkpoint/"+c.Commit] {
				t.Errorf("%s: checkpoint %q is in the history and not in the log", verb, c.Message)
			}
		}
		got := h.log.types()
		if verb == "restore" && !strings.Contains(got, "checkpoint.restored") || verb == "move" && !strings.Contains(got, "file.removed file.written") {
			t.Errorf("%s: the log holds %s", verb, got)
		}
	}
}

// TestOverlaysAreDroppedByName shows that overlays that a dead process left are dropped by name,
// and that the others stay.
func TestOverlaysAreDroppedByName(t *testing.T) {
	h := newHost(t)
	for _, id := range []string{"task-1", "task-2", "other"} {
		if _, err := h.Begin(t.Context(), id, ""); err != nil {
			t.Fatal(err)
		}
		h.write("boxes/"+id+"/upper/file", id)
	}
	if err := h.DropAll(t.Context(), func(id string) bool { return strings.HasPrefix(id, "task-") }); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(filepath.Join(h.dir, "boxes"))
	if err != nil || len(left) != 1 || left[0].Name() != "other" {
		t.Errorf("left are %v, %v", left, err)
	}
}
