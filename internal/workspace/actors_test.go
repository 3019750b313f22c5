package workspace_test

import (
	"os/exec"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/workspace"
)

// made lists the checkpoints in the log as "kind: actor for user".
func (h *host) made() (out []string) {
	for _, e := range h.log.all() {
		if p, err := contract.DecodeData(e.Type, e.Data); err == nil && e.Type == "checkpoint.created" {
			out = append(out, string(p.(*contract.CheckpointCreated).Kind)+": "+string(e.Actor)+" for "+e.User)
		}
	}
	return out
}

// TestACheckpointIsWhoseWhoAskedForIt shows that the log names as the author of a checkpoint
// whoever asked for it, also where a later process appends the event and has nothing but the commit
// to go by. A checkpoint that nobody asked for is the host's.
func TestACheckpointIsWhoseWhoAskedForIt(t *testing.T) {
	h := newHost(t)
	h.log.reset()
	ctx := t.Context()
	initial, err := h.Checkpoints(ctx, "", 1)
	if err != nil {
		t.Fatal(err)
	}
	h.write("workspace/a", "two\n")
	if _, err := h.Checkpoint(ctx, workspace.CheckpointRequest{Kind: contract.CheckpointManual, By: contract.DesktopOf("u-1")}); err != nil {
		t.Fatal(err)
	}
	h.write("workspace/a", "three\n")
	if _, err := h.Checkpoint(ctx, workspace.CheckpointRequest{Kind: contract.CheckpointAuto}); err != nil {
		t.Fatal(err)
	}
	h.write("workspace/a", "four\n")
	if _, err := h.Restore(ctx, workspace.RestoreRequest{To: initial[0].Commit, By: contract.Person("u-2")}); err != nil {
		t.Fatal(err)
	}
	want := "manual: app:desktop for u-1, auto: system for , safety: person:u-2 for u-2, restore: person:u-2 for u-2"
	if got := strings.Join(h.made(), ", "); got != want {
		t.Errorf("the log says\n%s\nwant\n%s", got, want)
	}
	h.log.reset()
	h.log.byID = nil
	h.restart()
	if got := strings.Join(h.made(), ", "); !strings.HasSuffix(got, want) {
		t.Errorf("told again, the log says\n%s\nwant\n%s", got, want)
	}
}

// TestANoteWithoutAnActorIsTheHosts shows that a checkpoint is taken for the host's when its note
// names nobody, because an earlier version wrote it or nobody asked for it, and also when its note
// names an actor who can't make checkpoints, because such a note is not to be trusted.
func TestANoteWithoutAnActorIsTheHosts(t *testing.T) {
	h := newHost(t)
	h.end()
	git := func(args ...string) string {
		cmd := exec.Command("git", append([]string{"-C", h.dir + "/workspace", "-c", "user.name=x", "-c", "user.email=x@x"}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	for _, trailer := range []string{"", "Choir-Actor: director:r\n", "Choir-Actor: person\nChoir-User: u-1\n", "Choir-Actor: king\nChoir-User: u-1\n", "Choir-Actor: person:u-1\nChoir-User: u-1\n"} {
		commit := git("commit-tree", "HEAD^{tree}", "-p", "HEAD", "-m", "A note\n\nChoir-Kind: manual\nChoir-Seq: 1\n"+trailer+"Choir-Verified: unknown\nChoir-Files: 0")
		git("update-ref", git("symbolic-ref", "HEAD"), commit)
	}
	h.log.reset()
	h.start()
	got := h.made()
	want := []string{"manual: system for ", "manual: system for ", "manual: person for ", "manual: system for ", "manual: person:u-1 for u-1"}
	if len(got) < len(want) || strings.Join(got[len(got)-len(want):], ", ") != strings.Join(want, ", ") {
		t.Errorf("the log says %q, want %q at its end", got, want)
	}
}
