package state_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/state"
)

// TestNoQuestionReadsTheWholeLog shows that questions about the past are answered by an index, so
// that what SQLite reads does not grow with the log. It may read a table whole only if a computer
// has few of its rows.
func TestNoQuestionReadsTheWholeLog(t *testing.T) {
	newest := []string{"state.LivePublish", "state.Poison", "state.Computer", "state.Runs", "state.Documents", "state.Mirrors", "state.Egress", "state.Proposals", "state.Approvals"}
	few := []string{"computer", "theme", "windows", "repositories", "builds", "restores"}
	s := newStore(t)
	var plans []string
	s.Plans(func(op, plan string) { plans = append(plans, op+": "+plan) })
	ctx := t.Context()
	ask := func(_ any, err error) {
		t.Helper()
		if err != nil && !strings.Contains(err.Error(), "there is no") {
			t.Fatal(err)
		}
	}
	for _, f := range []state.EventFilter{
		{}, {Types: []string{"a"}}, {Types: []string{"a", "b", "c"}}, {Run: "r"}, {Run: "r", Types: []string{"a"}}, {Run: "r", Types: []string{"a", "b"}},
		{Task: "t"}, {Task: "t", Types: []string{"a"}}, {Subject: "s"}, {Subject: "s", Types: []string{"a"}}, {Run: "r", Task: "t"},
	} {
		ask(s.Events(ctx, f))
	}
	ask(s.Event(ctx, "s", "i"))
	ask(s.EventsAfter(ctx, 5, 10))
	ask(s.Poison(ctx, 1))
	ask(s.Computer(ctx))
	ask(s.Appended(ctx, time.Now()))
	for _, open := range []bool{false, true} {
		ask(s.Runs(ctx, state.RunFilter{Open: open}))
		ask(s.Runs(ctx, state.RunFilter{Open: open, Before: 9}))
		ask(s.Tasks(ctx, state.TaskFilter{Run: "r", Open: open}))
		ask(s.Publishes(ctx, "t", open))
		ask(s.Questions(ctx, "r", open))
		ask(s.Proposals(ctx, state.ProposalFilter{Open: open}))
		ask(s.Proposals(ctx, state.ProposalFilter{Document: "d", Open: open}))
		ask(s.Approvals(ctx, state.ApprovalFilter{Open: open}))
		ask(s.Approvals(ctx, state.ApprovalFilter{Run: "r", Open: open}))
	}
	ask(s.Tasks(ctx, state.TaskFilter{Open: true}))
	ask(s.Publishes(ctx, "", true))
	ask(s.Commands(ctx, 5))
	ask(s.Questions(ctx, "", true))
	ask(s.Run(ctx, "r"))
	ask(s.Task(ctx, "t"))
	ask(s.Attempts(ctx, "t"))
	ask(s.ToolCalls(ctx, state.ToolCallFilter{Run: "r"}))
	ask(s.ToolCalls(ctx, state.ToolCallFilter{Task: "t"}))
	ask(s.Turns(ctx, "t", 0))
	ask(s.Messages(ctx, "r", 0))
	ask(s.Verifications(ctx, "t"))
	ask(s.Checkpoints(ctx, 0, 5))
	ask(s.Checkpoint(ctx, "abcd"))
	ask(s.Restores(ctx, 5))
	ask(s.LivePublish(ctx))
	ask(s.Documents(ctx, 5))
	ask(s.Document(ctx, "d"))
	ask(s.DocumentPaths(ctx, ""))
	ask(s.Revisions(ctx, "d", 0, 5))
	ask(s.Revision(ctx, "d", 1))
	ask(s.RevisionAt(ctx, "d", 9))
	ask(s.RevisionOf(ctx, "d", contract.NewBlobRef(sum("x"))))
	ask(s.RevisionBy(ctx, "d", "s", "e"))
	ask(s.Mirrored(ctx, "d"))
	ask(s.Mirrors(ctx, 5))
	ask(s.Windows(ctx))
	ask(s.Theme(ctx))
	ask(s.Usage(ctx, state.UsageFilter{Run: "r"}))
	ask(s.Usage(ctx, state.UsageFilter{Day: "d"}))
	ask(s.Repositories(ctx))
	ask(s.Egress(ctx, "t", 5))
	ask(s.Egress(ctx, "", 5))
	ask(s.Traffic(ctx, "r"))
	ask(s.Builds(ctx, 5))
	for _, p := range plans {
		op, steps, _ := strings.Cut(p, ": ")
		sorted := strings.Contains(steps, "FOR ORDER BY")
		for _, step := range strings.Split(steps, "; ") {
			table, scan := strings.CutPrefix(step, "SCAN ")
			table, index, _ := strings.Cut(table, " ")
			switch {
			case strings.Contains(step, "events_by_type (type=?)"):
				t.Errorf("%s looks through all events of a type: %s", op, steps)
			case !scan || slices.Contains(few, table) || strings.HasPrefix(table, "(subquery"):
			case strings.HasSuffix(index, "_open") || strings.HasSuffix(index, "_with_error"): // of what has not ended
			case !sorted && slices.Contains(newest, op): // it stops at the page's last row
			default:
				t.Errorf("%s reads all of %s: %s", op, table, steps)
			}
		}
	}
	if len(plans) < 60 {
		t.Errorf("only %d questions were looked at", len(plans))
	}
}

// TestEventsOfSeveralTypes shows that a page of several types holds the first events of all of
// them, and that pages follow each other without a gap.
func TestEventsOfSeveralTypes(t *testing.T) {
	l := newLog()
	var want []uint64
	for i := range 40 {
		l.say(t, "file.removed", &contract.FileRemoved{Path: "workspace/a"}, inRun("r"))
		e := l.say(t, "file.written", &contract.FileWritten{Path: "workspace/a", Size: 1, SHA256: blobRef("x")}, inRun("r"))
		want = append(want, e.Sequence)
		if i%5 == 0 {
			e := l.say(t, "command.started", &contract.CommandStarted{Command: contract.NewID(), Argv: []string{"true"}})
			want = append(want, e.Sequence)
		}
	}
	s := newStore(t)
	project(t, s, l)
	types := []string{"command.started", "file.written", "theme.changed"}
	var got []uint64
	for after := uint64(0); ; {
		page, err := s.Events(t.Context(), state.EventFilter{Types: types, After: after, Limit: 7})
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, e := range page {
			after = e.Sequence
			got = append(got, after)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %d, want %d", got, want)
	}
	if page, err := s.Events(t.Context(), state.EventFilter{Types: types, Run: "r", After: want[0], Limit: 1000}); err != nil || len(page) != 39 {
		t.Errorf("%d events of the run, %v", len(page), err)
	}
}
