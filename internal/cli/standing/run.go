package standing

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/cli"
	"choir.dev/choiros/internal/cli/terminal"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/view"
)

// Result is the stable shape of `choir prompt --json` and `choir wait --json`.
type Result struct {
	Run        string  `json:"run"`
	Status     string  `json:"status"`
	Verified   string  `json:"verified"` // pass, fail or unknown
	Summary    string  `json:"summary"`
	Document   string  `json:"document"`
	Tasks      []Task  `json:"tasks"`
	Checkpoint string  `json:"checkpoint"`
	CostUSD    float64 `json:"cost_usd"`
	// Paused says who had it pause, null unless it is paused; its status is then the one that it goes on with.
	Paused *view.Paused `json:"paused"`
	// Waits are the models that it waits for, with why, since when and until when.
	Waits []view.ModelWait `json:"waits"`
	// Questions and Approvals are those that it waits for.
	Questions []contract.Question `json:"questions"`
	Approvals []view.Approval     `json:"approvals"`
	// Reviews are what waits until its user has looked at it.
	Reviews []view.Review `json:"reviews"`
}

// Task is a task of a Result.
type Task struct {
	ID           string `json:"id"`
	Kind         string `json:"kind"`
	Goal         string `json:"goal"`
	Status       string `json:"status"`
	Verification string `json:"verification"`
	// Tests is how many tests ran with the base's tools and configuration of the checks,
	// Said what the task changed of those, and Reason why it failed, or why it is not verified.
	Tests  int      `json:"tests"`
	Said   []string `json:"said"`
	Reason string   `json:"reason"`
}

// ResultOf is what programs are told of a run.
func ResultOf(r view.Run) Result {
	out := Result{Run: r.ID, Status: cmp.Or(string(r.Status), "unknown"), Verified: verdict(r.Verified), Summary: r.Summary, Document: r.Document,
		Checkpoint: r.Checkpoint, CostUSD: r.Usage.CostUSD, Tasks: []Task{}, Paused: r.Paused, Waits: cli.List(r.Waits),
		Questions: cli.List(r.Questions), Approvals: cli.List(r.Approvals), Reviews: cli.List(r.Reviews)}
	for _, t := range r.Tasks {
		p := Task{ID: t.ID, Kind: string(t.Kind), Goal: t.Goal, Status: t.Status, Verification: string(t.Verification), Said: []string{}}
		if t.Result != nil {
			v := t.Result.Verification
			p.Tests, p.Said, p.Reason = v.Tests, append(p.Said, v.Said...), cmp.Or(failure(t), v.Reason)
		}
		out.Tasks = append(out.Tasks, p)
	}
	return out
}

// maxFailure bounds the sentence that says why a task failed, in bytes.
const maxFailure = 500

// failure says why a task that has ended did not succeed; "" if it did.
func failure(t view.Task) string {
	if t.Result == nil || t.Result.Status == contract.ResultOK {
		return ""
	}
	return terminal.OneLine(t.Result.Summary, maxFailure)
}

// verdict is a run's verification; one that has not been judged is unknown.
func verdict(v contract.VerificationStatus) string {
	if v == "" {
		v = contract.VerificationUnknown
	}
	return string(v)
}

// Status is where a run stands, in a word.
func Status(r view.Run) string {
	if r.Paused != nil {
		return "paused"
	}
	return string(r.Status)
}

// status is Status, with why it is so.
func status(r view.Run, in People) string {
	if p := r.Paused; p != nil {
		said := "paused"
		if p.By != "" {
			said += " by " + terminal.OneLine(in.Whose(p.By, ""), 100)
		}
		if !p.Since.IsZero() {
			said += " since " + terminal.Time(p.Since)
		}
		return said + "; it goes on with: choir run resume " + r.ID
	}
	return string(r.Status) + Suffix(r.Reason)
}

// awaited is a model that is waited for: why, since when and until when.
func awaited(w view.ModelWait) string {
	said := "its model " + terminal.OneLine(w.Provider+"/"+w.Model, 200) + ": " + terminal.OneLine(cmp.Or(w.Message, w.Code), 300)
	for _, at := range []struct{ word, time string }{{"since", w.Since}, {"tried again at", w.Next}, {"given up at", w.Until}} {
		if t, err := time.Parse(time.RFC3339, at.time); err == nil {
			said += ", " + at.word + " " + terminal.Time(t)
		}
	}
	return said
}

// model is a run's model as it is written in a prompt; "" while none is chosen.
func model(r view.Run) string {
	name := strings.TrimPrefix(r.Model, r.Provider+"/")
	if r.Provider != "" && name != "" {
		name = r.Provider + "/" + name
	}
	return name
}

// PeopleIn requests the names of a run's people, if what is shown of it names any. When they can't be had
// their accounts are shown.
func PeopleIn(ctx context.Context, c *client.Client, r view.Run) People {
	named := r.Paused != nil || slices.ContainsFunc(r.Tasks, func(t view.Task) bool { return t.Result != nil && t.Result.Reviewed != nil })
	if !named {
		return nil
	}
	in, err := PeopleOf(ctx, c)
	if err != nil {
		return nil
	}
	return in
}

// Print shows a run.
func Print(w io.Writer, r view.Run, in People) {
	terminal.Row(w, "run", r.ID)
	terminal.Row(w, "prompt", terminal.OneLine(r.Prompt, 100))
	terminal.Row(w, "status", status(r, in))
	for _, m := range r.Waits {
		terminal.Row(w, "waits for", awaited(m))
	}
	terminal.Row(w, "model", model(r))
	terminal.Row(w, "verified", Mark(r.Verified))
	terminal.Row(w, "checkpoint", r.Checkpoint)
	if r.Continues != "" {
		terminal.Row(w, "continues", r.Continues)
	}
	if r.Direct != "" {
		terminal.Row(w, "direct", "to one Associate at once: "+terminal.OneLine(r.Direct, 200))
	}
	terminal.Row(w, "cost", fmt.Sprintf("$%.4f, %d + %d tokens", r.Usage.CostUSD, r.Usage.TokensIn, r.Usage.TokensOut))
	for _, t := range r.Tasks {
		printTask(w, t, in)
	}
	for _, q := range r.Questions {
		terminal.Row(w, "question", fmt.Sprintf("%s: %s %v", q.ID, terminal.OneLine(q.Text, 200), q.Choices))
	}
	for _, a := range r.Approvals {
		terminal.Row(w, "approval", a.ID+": "+Wanted(a))
	}
	for _, l := range r.Reviews {
		terminal.Row(w, "review", fmt.Sprintf("%d paths wait until you have looked at them: choir review %s --task %s", l.Paths, l.Run, l.Task))
	}
	if r.StoodMS > 0 {
		terminal.Row(w, "stood still", (time.Duration(r.StoodMS) * time.Millisecond).Round(time.Second))
	}
	if r.Error != "" && !strings.HasPrefix(r.Summary, r.Error) {
		terminal.Row(w, "error", terminal.OneLine(r.Error, 300))
	}
	terminal.Text(w, "\n"+r.Summary+"\n")
}

func printTask(w io.Writer, t view.Task, in People) {
	terminal.Row(w, "task", fmt.Sprintf("%s %s %s: %s", Mark(t.Verification), t.Status, t.Kind, terminal.OneLine(t.Goal, 80)))
	if t.Result == nil {
		return
	}
	if why := failure(t); why != "" {
		terminal.Row(w, "why", why)
	}
	for _, o := range t.Result.Overlaps {
		terminal.Row(w, "overlap", fmt.Sprintf("%d paths that task %s changed, too: %s", len(o.Paths)+o.More, o.Task, terminal.OneLine(strings.Join(o.Paths, ", "), 200)))
	}
	for _, q := range t.Result.Requests {
		terminal.Row(w, "request", string(q.Type)+": "+terminal.OneLine(q.Text, 300))
	}
	if r := t.Result.Reviewed; r != nil {
		terminal.Row(w, "reviewed", Decided(r.Decision, r.Only, in.Whose(contract.ActorName(r.By), r.User)))
	}
	if k := t.Result.Kept; k != nil {
		terminal.Row(w, "kept", fmt.Sprintf("%s, %d paths: what it wrote and was not published", k.Commit, k.Paths))
	}
}

// Suffix is a text behind another, in brackets.
func Suffix(s string) string {
	if s == "" {
		return ""
	}
	return " (" + terminal.OneLine(s, 120) + ")"
}

// Mark is a verification in one character.
func Mark(v contract.VerificationStatus) string {
	switch v {
	case contract.VerificationPass:
		return "✓"
	case contract.VerificationFail:
		return "✕"
	}
	return "?"
}

// Wanted says what an approval is asked for. An address is shown whole: what it carries out may stand at its end.
func Wanted(a view.Approval) string {
	switch a.Kind {
	case contract.ApprovalFetch:
		return "reading " + terminal.OneLine(a.URL, contract.MaxURL)
	case contract.ApprovalRequest:
		return "sending " + terminal.OneLine(a.Act().Target(), contract.MaxURL+20) + ", which changes something there"
	}
	return "a connection to " + terminal.OneLine(a.Act().Target(), 300)
}

// Decided says what became of work that somebody looked at, and by whom.
func Decided(d contract.ReviewDecision, only []contract.Choice, by string) string {
	who := terminal.OneLine(by, 100)
	switch {
	case d == "":
		return "by nobody: its task ended before"
	case len(only) > 0:
		return fmt.Sprintf("%s a part, of %d paths, by %s", d, len(only), who)
	}
	return fmt.Sprintf("%s, by %s", d, who)
}
