package summary

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/associate"
	"choir.dev/choiros/internal/associate/verify"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/director"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/harness"
	story "choir.dev/choiros/internal/run"
	"choir.dev/choiros/internal/tool"
	"choir.dev/choiros/internal/view"
)

// Resumable returns a task's recorded turns, with the results of calls completed from the
// log where a turn has none: a call that returned has its output, the result of one that did
// not is unknown, and one that was never begun is reported as not run. If none of the last
// turn's calls was begun, that turn is left out, and the model is asked again.
//
// Where the attempt was sent back, the call that had ended the loop, whose return no model saw, returns what
// the checks found.
func Resumable(t *story.Task) []contract.TurnRecorded {
	out := append([]contract.TurnRecorded(nil), t.Turns...)
	for _, r := range t.Repairs {
		for i := range out {
			if out[i].Index == r.Turn {
				out[i].Returns = sentBack(out[i], r.Failed)
			}
		}
	}
	if defence.Off(defence.RunReturns) {
		return out
	}
	called := map[string]bool{}
	for _, c := range t.Calls {
		called[c.Call] = true
	}
	return complete(out, func(c contract.ToolCall) (r contract.ToolReturn, made bool) {
		call := c.ID
		ret, returned := t.Returns[call]
		switch {
		case returned:
			r.Content, r.Images, r.IsError = cmp.Or(ret.Output, "(no output)"), ret.Images, !ret.OK
		case t.Outside[call] != nil:
			r.IsError, r.Content = t.Outside[call].Outcome() != contract.EffectDone, lostReturn(t.Outside[call])
		case called[call]:
			r.IsError, r.Content = true, "Unknown: the box or the computer ended while this call ran. It may or may not have happened; look before you repeat it."
		default:
			r.IsError, r.Content = true, "Not run: the box or the computer ended before it."
		}
		return r, called[call]
	})
}

// complete answers the calls of turns without returns, and leaves the last turn out if none of its calls was made.
func complete(turns []contract.TurnRecorded, answer func(call contract.ToolCall) (r contract.ToolReturn, made bool)) []contract.TurnRecorded {
	for i := range turns {
		t := &turns[i]
		if t.Returns != nil {
			continue
		}
		msg, n := contract.Message{Role: contract.MessageUser}, 0
		for _, p := range t.Message.Parts {
			if p.Call == nil {
				continue
			}
			r, made := answer(*p.Call)
			if r.ID = p.Call.ID; made {
				n++
			}
			msg.Parts = append(msg.Parts, contract.Part{Return: &r})
		}
		switch {
		case len(msg.Parts) == 0:
		case n == 0 && i == len(turns)-1:
			return turns[:i]
		default:
			t.Returns, t.Usage.ToolCalls = []contract.Message{msg}, n
		}
	}
	return turns
}

// sentBack returns the returns of a turn behind which a loop is told that its work failed the checks.
func sentBack(t contract.TurnRecorded, failed string) []contract.Message {
	msg := contract.Message{Role: contract.MessageUser}
	told := false
	for _, m := range t.Returns {
		for _, p := range m.Parts {
			if r := p.Return; r != nil && !r.IsError && !told && ends(t, r.ID) {
				p.Return, told = &contract.ToolReturn{ID: r.ID, Content: failed, IsError: true}, true
			}
			msg.Parts = append(msg.Parts, p)
		}
	}
	if !told {
		msg.Parts = append(msg.Parts, contract.Part{Text: failed})
	}
	return []contract.Message{msg}
}

// ends reports whether a call of a turn is the one with which an Associate ends its work.
func ends(t contract.TurnRecorded, call string) bool {
	return slices.ContainsFunc(t.Message.Parts, func(p contract.Part) bool {
		return p.Call != nil && p.Call.ID == call && slices.ContainsFunc(associate.Declared(), func(t tool.Tool) bool { return t.Ends && t.Name == p.Call.Name })
	})
}

// Bounds of what a loop is told of checks that failed, in bytes: of one stream of a check, and of all.
const (
	maxStream = 6 << 10
	maxRepair = 24 << 10
)

// Repair describes to a loop what the checks of its work found, for its n-th repair of at most max.
func Repair(v contract.Verification, n, max int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Not over: your work failed its checks and was not published. Your tree is as you left it. Repair the work, not the checks: they run with the tests and configuration that were there before. Then end the task again. This is repair %d of at most %d.\n", n, max)
	for _, c := range v.Checks {
		if c.Status != contract.VerificationFail {
			continue
		}
		fmt.Fprintf(&b, "\nFailed: %s (%s), exit code %d\n", c.Name, strings.Join(c.Command.Argv, " "), c.Command.ExitCode)
		for _, s := range []struct{ name, text string }{{"stdout", c.Command.Stdout}, {"stderr", c.Command.Stderr}} {
			if strings.TrimSpace(s.text) != "" {
				fmt.Fprintf(&b, "%s:\n%s\n", s.name, harness.Clip(s.text, maxStream))
			}
		}
	}
	if said := Checked(v); said != "" {
		b.WriteString(said)
	}
	return harness.Clip(b.String(), maxRepair)
}

// Delegation returns the causation id of the tasks that one call of delegate requested.
func Delegation(s *story.Run, call string) string {
	return contract.DeriveID(s.ID, "delegation:"+call)
}

// QuestionID returns the id of the question that a call of the Director asks. It is the
// same after a restart.
func QuestionID(s *story.Run, call string) string {
	if defence.Off(defence.RunQuestions) {
		return contract.NewID()
	}
	return contract.DeriveID(s.ID, "question:"+call)
}

// Task returns a task as the Director sees it.
func Task(t *story.Task) director.TaskView {
	v := director.TaskView{ID: t.Request.ID, Kind: t.Request.Kind, Goal: t.Request.Goal, Status: "working"}
	if !t.Ended() {
		return v
	}
	r := t.Newest
	v.Status, v.Summary, v.Head, v.Next = string(r.Status), r.Summary, r.Head, r.SuggestedNext
	v.Kept, v.Overlaps, v.Requests = r.Kept, r.Overlaps, r.Requests
	for _, e := range r.Effects {
		v.Outside = append(v.Outside, Outside(e))
	}
	v.Verification, v.Reason = r.Verification.Status, r.Verification.Reason
	for _, c := range r.Verification.Checks {
		if c.Status != contract.VerificationPass {
			out := c.Command.Stdout + "\n" + c.Command.Stderr
			v.Reason += fmt.Sprintf("\n%s: exit code %d\n%s", c.Name, c.Command.ExitCode, tail(out, 1500))
		}
	}
	for i, c := range r.Changes {
		if i == 40 {
			v.Changes = append(v.Changes, fmt.Sprintf("and %d more", len(r.Changes)-i))
			break
		}
		v.Changes = append(v.Changes, fmt.Sprintf("%s (%s)", c.Path, c.Op))
	}
	for i, c := range r.Citations {
		if i == maxCitedTold {
			v.Cited = append(v.Cited, fmt.Sprintf("and %d more", len(r.Citations)-i))
			break
		}
		v.Cited = append(v.Cited, fmt.Sprintf("[^%s] %s: %s (%s)", c.Label, c.Support, OneLine(c.Claim, 300), OneLine(c.Address, 200)))
	}
	for _, q := range r.Questions {
		v.Questions = append(v.Questions, q.Text)
	}
	if t.Request.Kind == contract.KindExec {
		for _, c := range r.Commands[:min(len(r.Commands), 20)] {
			said := strings.TrimSpace(tail(c.Stdout, 1500) + "\n" + tail(c.Stderr, 500))
			v.Ran = append(v.Ran, strings.TrimSpace(fmt.Sprintf("%s → exit code %d\n%s", OneLine(commandLine(c.Argv), 300), c.ExitCode, said)))
		}
	}
	return v
}

// maxCitedTold bounds the citations of one task that its Director is told of.
const maxCitedTold = 40

// verdict is the host's own judgement of a run that claims to be done: the last attempt at
// each of its tasks must have succeeded, and the run is verified when all tasks that
// changed something are. A later task with the same goal counts as another attempt if the
// checks that the earlier one failed passed there; a task with another goal makes up for
// nothing.
func verdict(s *story.Run) (ok bool, verified contract.VerificationStatus, why []string) {
	ok, verified = true, contract.VerificationUnknown
	passed, doubted := false, false
	for i, t := range s.Tasks {
		name := fmt.Sprintf("“%s”", Title(t.Request.Goal))
		switch {
		case !t.Ended():
			ok = false
			why = append(why, name+" has not ended.")
		case t.Newest.Status != contract.ResultOK && again(s, i):
			why = append(why, fmt.Sprintf("An earlier attempt at %s ended as %s.", name, t.Newest.Status))
		case t.Newest.Status != contract.ResultOK && defence.Off(defence.RunConjunction):
		case t.Newest.Status != contract.ResultOK:
			ok, doubted = false, true
			why = append(why, fmt.Sprintf("%s ended as %s%s", name, t.Newest.Status, because(t.Newest.Summary)))
		case !t.Changes():
		case t.Newest.Verification.Status == contract.VerificationPass:
			passed = true
			for _, said := range t.Newest.Verification.Said {
				why = append(why, fmt.Sprintf("In %s %s.", name, said))
			}
		case len(t.Newest.Changes) > 0:
			doubted = true
			for _, said := range t.Newest.Verification.Said {
				why = append(why, fmt.Sprintf("In %s %s.", name, said))
			}
			why = append(why, fmt.Sprintf("%s is not verified: %s.", name, t.Newest.Verification.Reason))
		case restores(t):
			doubted = true
			why = append(why, fmt.Sprintf("%s is not verified: %s.", name, t.Newest.Verification.Reason))
		default: // it changed nothing; what it left behind is said all the same
			for _, said := range t.Newest.Verification.Said {
				why = append(why, fmt.Sprintf("In %s %s.", name, said))
			}
		}
	}
	if passed && !doubted {
		verified = contract.VerificationPass
	}
	return ok, verified, why
}

// maxBecause bounds the sentence with which a report says why a task failed, in bytes.
const maxBecause = 300

// because is the end of a sentence that says how a task ended: why, in its own words on one line.
func because(summary string) string {
	if summary = OneLine(summary, maxBecause); summary == "" {
		return "."
	}
	return ": " + summary
}

// leftovers describes what tasks showed live that could not be taken back.
func leftovers(s *story.Run) []string {
	var out []string
	for _, t := range s.Tasks {
		switch {
		case t.Now.Left != "" && t.Now.Decided:
			out = append(out, fmt.Sprintf("Whether the work of “%s” was published is not known (%s). To go back, restore the checkpoint “%s” in Time Travel.",
				Title(t.Request.Goal), OneLine(t.Now.Left, 500), BeforeTask(t.Request)))
		case t.Now.Left != "":
			out = append(out, fmt.Sprintf("What “%s” showed live could not be taken back (%s): it is still there, unverified. To go back, restore the checkpoint “%s” in Time Travel.",
				Title(t.Request.Goal), OneLine(t.Now.Left, 500), BeforeTask(t.Request)))
		}
	}
	return out
}

// idle says that a run which reports success did nothing; it returns "" if it did
// something.
func idle(s *story.Run) string {
	if len(s.Tasks) == 0 {
		return "No task was given to anybody: nothing was done or changed, these are only words."
	}
	for _, t := range s.Tasks {
		if t.Ended() && t.Newest.Status == contract.ResultOK && (len(t.Newest.Changes) > 0 || t.Newest.Head != "") {
			return ""
		}
	}
	where, outside := "", doneOutside(s)
	if outside != "" {
		where = " in the computer"
	}
	if len(KeptTrees(s)) > 0 {
		return "Nothing was changed" + where + "; what was written is kept, and a prompt that continues this run goes on from it." + outside
	}
	return "Nothing was changed" + where + "." + outside
}

// restores reports whether a task restored a checkpoint, which changes files.
func restores(t *story.Task) bool {
	return slices.ContainsFunc(t.Request.Steps, func(s contract.Step) bool { return s.Git != nil && s.Git.Op == contract.GitRestore })
}

// again reports whether a later task is another attempt at task i: it has the same kind and
// goal, and it succeeded or changed something itself. The checks that task i failed must
// have passed in one of these tasks, because the same goal on another project is no other
// attempt. The one task of a prompt that nobody had planned was to do all of it, so whatever
// its Director has done afterwards is another attempt; by reading only if it had written
// nothing.
func again(s *story.Run, i int) bool {
	answered := false
	owed := map[string]bool{}
	for _, c := range s.Tasks[i].Newest.Verification.Checks {
		if c.Status == contract.VerificationFail {
			owed[verify.CheckName(c)] = true
		}
	}
	for _, later := range s.Tasks[i+1:] {
		if !later.Ended() || !another(s, i, later) {
			continue
		}
		r := later.Newest
		if !later.Changes() || len(r.Changes) > 0 || r.Head != "" || r.Status != contract.ResultOK || wroteNothing(s, i) {
			answered = true // it changed something, had nothing to change, or says itself how it ended
		}
		for _, c := range r.Verification.Checks {
			if c.Status == contract.VerificationPass && r.Status == contract.ResultOK {
				delete(owed, verify.CheckName(c))
			}
		}
	}
	return answered && (len(owed) == 0 || defence.Off(defence.RunConjunction))
}

// another reports whether a later task can be another attempt at task i.
func another(s *story.Run, i int, later *story.Task) bool {
	if s.Direct != "" && i == 0 {
		return later.Newest.Status == contract.ResultOK && (later.Changes() || wroteNothing(s, i))
	}
	return later.Request.Kind == s.Tasks[i].Request.Kind && later.Request.Goal == s.Tasks[i].Request.Goal
}

// wroteNothing reports whether task i was the one of a prompt that nobody had planned, and has left nothing.
func wroteNothing(s *story.Run, i int) bool {
	return s.Direct != "" && i == 0 && s.Tasks[i].Newest.Kept == nil
}

// Reported is what the log says of a run that ends: what its Director reported, with the host's own verdict on it.
func Reported(r *story.Run, rep director.Report, spent contract.Usage) *contract.RunReported {
	ok, verified, why := verdict(r)
	if did := idle(r); did != "" && rep.Status == contract.RunDone {
		why = append(why, did)
	}
	if late := unheard(r); len(late) > 0 {
		ok, why = false, append(why, late...) // what was asked for is not what was done
	}
	p := &contract.RunReported{Status: rep.Status, Summary: harness.Clip(rep.Summary, 16<<10), Document: r.DocumentID(),
		Checkpoint: r.NewestCheckpoint(), Verified: verified, Usage: spent}
	if !p.Status.Ended() {
		p.Status = contract.RunFailed
	}
	if p.Status == contract.RunDone && !ok {
		p.Status = contract.RunFailed
		p.Summary += "\n\nThe Director called this done; it is not:"
		rep.Detail = strings.Join(why, " ")
	}
	if p.Status == contract.RunCancelled {
		why = nil
	}
	if why = append(append(why, leftovers(r)...), unknownOutside(r)...); len(why) > 0 {
		p.Summary = harness.Clip(p.Summary+"\n\n- "+strings.Join(why, "\n- "), 30<<10)
	}
	if p.Status == contract.RunFailed {
		p.Error = harness.Clip(cmp.Or(rep.Detail, rep.Summary), 8000)
	}
	if p.Summary == "" {
		p.Summary = string(p.Status)
	}
	return p
}

// OneLine puts a text on one line and cuts it to at most max bytes.
func OneLine(s string, max int) string {
	s = strings.ToValidUTF8(strings.Join(strings.Fields(s), " "), "\uFFFD")
	if len(s) <= max {
		return s
	}
	return contract.Clip(s, max) + "…"
}

// Title returns the first line of a goal.
func Title(goal string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(goal), "\n")
	return OneLine(line, 120)
}

// tail returns the end of a text, where commands usually report why they failed.
func tail(s string, max int) string {
	s = strings.TrimSpace(s)
	if len(s) <= max {
		return s
	}
	i := len(s) - max
	for i < len(s) && !utf8.RuneStart(s[i]) {
		i++
	}
	return "…" + s[i:]
}

// Stays lists the paths that are still as the task made them although it was taken back.
func Stays(kept []view.Kept) string {
	if len(kept) == 0 {
		return ""
	}
	var list []string
	for _, k := range kept[:min(len(kept), 20)] {
		list = append(list, fmt.Sprintf("%s (%s)", OneLine(k.Path, 200), OneLine(k.Reason, 200)))
	}
	if n := len(kept) - len(list); n > 0 {
		list = append(list, fmt.Sprintf("and %d more", n))
	}
	return "\n\nNot taken back, so it may hold what the task wrote: " + strings.Join(list, ", ") + "."
}

// BeforeTask returns the title of the checkpoint that is made before a task.
func BeforeTask(t contract.DirectorTask) string { return "Before: " + Title(t.Goal) }

// LeftBehind converts the list of what a tree could not hold, with the reasons.
func LeftBehind(left []view.Kept) []verify.LeftBehind {
	out := make([]verify.LeftBehind, len(left))
	for i, k := range left {
		out[i] = verify.LeftBehind(k)
	}
	return out
}

// Checked describes what a person should know of a verification besides its status: what
// the task changed of the files that judge it, and why it did not pass.
func Checked(v contract.Verification) string {
	said := slices.Clone(v.Said)
	if v.Reason != "" {
		said = append(said, v.Reason)
	}
	if len(said) == 0 {
		return ""
	}
	return harness.Clip("\n\nWhat was checked: "+strings.Join(said, "; ")+".", 8<<10)
}

// TouchesShell reports whether changes are to the desktop's source.
func TouchesShell(changes []contract.Change) bool {
	for _, c := range changes {
		if strings.HasPrefix(c.Path, verify.ShellDir+"/") {
			return true
		}
	}
	return false
}

// Kept describes what of a publish differs from what the task wanted.
func Kept(p ports.Published) string {
	var out string
	if len(p.Conflicts) > 0 {
		said := make([]string, 0, len(p.Conflicts))
		for i, k := range p.Conflicts {
			if i == maxKeptSaid {
				said = append(said, fmt.Sprintf("and %d more", len(p.Conflicts)-i))
				break
			}
			said = append(said, k.Path+" ("+k.Reason+")")
		}
		out += "\n\nKept as the user has them: " + strings.Join(said, ", ")
	}
	if len(p.Proposed) > 0 {
		out += "\n\nWaiting for the user as proposals: " + strings.Join(p.Proposed, ", ")
	}
	return out
}

// maxKeptSaid is how many conflicts are named.
const maxKeptSaid = 50
