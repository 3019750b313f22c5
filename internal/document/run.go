package document

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/run"
	"choir.dev/choiros/internal/state"
)

// Bounds of a run's document, in bytes. Their sum stays under the limit of
// data inside an event.
const (
	maxProse    = 6 << 10
	maxLine     = 300
	maxGoal     = 120
	maxAskedFor = 1 << 10
	maxPlan     = 10 << 10
	maxAsked    = 6 << 10
	maxEvidence = 20 << 10
	maxOutside  = 6 << 10
	maxOutput   = 1500
)

// section is a part of a run's document that is kept up to date until the user edits it.
type section struct{ key, heading, text string }

// Sections are what a run's document says of the run, rendered.
type Sections []section

// SectionsOf renders the sections about a run. What a task costs is added when an attempt
// ends, as otherwise each of its turns would need a revision. end is the report of a run
// that is about to end, nil while it goes on.
func SectionsOf(r *run.Run, end *contract.RunReported) Sections {
	status, report, took := r.Status, r.Report, time.Duration(0)
	var used contract.Usage
	for _, t := range r.Turns {
		used = used.Add(t.Usage)
	}
	for _, t := range r.Tasks {
		for _, result := range t.Results {
			used = used.Add(result.Usage)
		}
	}
	if end != nil {
		status, report, used, took = end.Status, end, end.Usage, time.Duration(end.Usage.WallMS)*time.Millisecond
	}
	return Sections{
		{"objective", "Objective", objective(r)},
		{"plan", "Plan", plan(r, report)},
		{"questions", "Questions", questions(r) + noted(r)},
		{"evidence", "Evidence", allEvidence(r) + outside(r)},
		{"result", "Result", result(status, report)},
		{"cost", "Cost", cost(used, took)},
	}
}

// RenderRun makes a new document for a run, its title first. The same run
// always gives the same text, of bounded size.
func RenderRun(title string, sections Sections) string {
	var b strings.Builder
	b.WriteString("# " + line(title, maxLine) + "\n")
	for _, s := range sections {
		b.WriteString("\n" + s.render())
	}
	b.WriteString("\n## Notes\n\n")
	return b.String()
}

// RunTitle makes a document's title from a prompt.
func RunTitle(prompt string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(prompt), "\n")
	if t := line(first, 80); t != "" {
		return t
	}
	return "Run"
}

// UpdateRun brings the sections of a run's document up to date. A section that
// the user has edited since it was written here, and everything that is not
// one of the sections, stays as it is; a section the user removed stays away.
func UpdateRun(body string, sections Sections) string {
	fresh := map[string]section{}
	for _, s := range sections {
		fresh[s.key] = s
	}
	var out strings.Builder
	for _, p := range split(body) {
		s, known := fresh[p.key]
		if !known || digest(p.content) != p.mark {
			out.WriteString(p.text)
			continue
		}
		delete(fresh, p.key) // a second copy of a section belongs to the user
		text := s.render()
		if strings.HasSuffix(p.text, "\n\n") {
			text += "\n"
		}
		out.WriteString(text)
	}
	return out.String()
}

// UpdateRun brings the document of a run up to date in the log. What the user
// changes in the same moment is kept.
func (d *Documents) UpdateRun(ctx context.Context, id string, sections Sections, by Author) (state.Revision, error) {
	const op = "document.UpdateRun"
	for range maxTries {
		head, err := d.fresh(ctx, id)
		if err != nil {
			return state.Revision{}, fault.Wrap(op, err)
		}
		rev, err := d.Revise(ctx, id, head.Revision, UpdateRun(head.Body, sections), by)
		if !errors.As(err, new(*ConflictError)) {
			return rev, fault.Wrap(op, err)
		}
	}
	return state.Revision{}, fault.New(op, fault.Unavailable, "Try again in a moment.", errors.New("the document did not hold still"))
}

// objective shows what the run is meant to achieve and, if that is worded differently, what
// was asked for.
func objective(r *run.Run) string {
	if r.Objective == "" {
		return prose(r.Prompt.Text) + continued(r)
	}
	s := prose(r.Objective) + continued(r)
	asked := strings.TrimSpace(r.Prompt.Text)
	if asked == "" || asked == strings.TrimSpace(r.Objective) {
		return s
	}
	return s + "\n> " + line(asked, maxAskedFor) + "\n"
}

// continued names the run that a run goes on from.
func continued(r *run.Run) string {
	if r.Prompt.Continues == "" {
		return ""
	}
	return "\nIt goes on from run " + code(r.Prompt.Continues) + ".\n"
}

func plan(r *run.Run, report *contract.RunReported) string {
	switch {
	case len(r.Plan) == 0 && r.Direct != "" && len(r.Turns) == 0:
		return "It went to one Associate at once: " + line(r.Direct, maxLine) + ".\n"
	case len(r.Plan) == 0 && report == nil:
		return "No plan yet.\n"
	case len(r.Plan) == 0:
		return "No plan was made.\n"
	}
	var items []string
	for _, it := range r.Plan {
		box, note := " ", ""
		switch it.Status {
		case contract.PlanDone:
			box = "x"
		case contract.PlanActive:
			note = " *(under way)*"
		case contract.PlanFailed:
			note = " **(failed)**"
		case contract.PlanDropped:
			box, note = "x", " *(dropped)*"
		}
		items = append(items, fmt.Sprintf("- [%s] %s%s\n", box, line(it.Text, maxLine), note))
	}
	return head(items, maxPlan, "- … and %d more\n")
}

func questions(r *run.Run) string {
	var items []string
	for _, q := range r.Questions {
		s := "- " + line(q.Text, maxLine)
		if len(q.Choices) > 0 {
			s += " (" + line(strings.Join(q.Choices, ", "), maxLine) + ")"
		}
		switch {
		case !q.Answered:
			s += " **waiting for an answer**"
		case q.ByDefault:
			s += " — " + line(q.Answer, maxLine) + " *(by default)*"
		default:
			s += " — " + line(q.Answer, maxLine)
		}
		items = append(items, s+"\n")
	}
	if len(items) == 0 {
		return "None.\n"
	}
	return tail(items, maxAsked, "- … %d earlier\n")
}

// noted shows what the computer keeps from now on because it was said to this run.
func noted(r *run.Run) string {
	var items []string
	for _, f := range r.Noted {
		items = append(items, "- Kept for later runs, until you have it forgotten (`choir forget "+f.ID+"`): “"+line(f.Text, 2*maxLine)+"”\n")
	}
	if len(items) == 0 {
		return ""
	}
	return "\n" + tail(items, maxAsked, "- … %d earlier\n")
}

// allEvidence shows the newest tasks in full and older ones in a line each.
func allEvidence(r *run.Run) string {
	if len(r.Tasks) == 0 {
		return "Nothing yet.\n"
	}
	items := make([]string, len(r.Tasks))
	left := maxEvidence * 3 / 4
	for i := len(r.Tasks) - 1; i >= 0; i-- {
		t := r.Tasks[i]
		full := evidence(t)
		if len(full) > left {
			full = heading(t)
		}
		left -= len(full)
		items[i] = full
	}
	return tail(items, maxEvidence, "- … %d earlier tasks\n")
}

// outside lists what was changed outside of the computer, or may have been, under a heading of its own. The user is asked to
// look only once nothing of the run can tell any more.
func outside(r *run.Run) string {
	var items []string
	for _, e := range r.Effects {
		said := "**under way**"
		switch o := e.Outcome(); {
		case o == contract.EffectUnknown:
			said = "**unknown**: it may have happened, and is not made again by itself; look, and say what you found with `choir effects resolve " + e.Effect + "`"
		case e.Resolved != nil:
			said = fmt.Sprintf("**%s**, as a person found", o)
		case o == contract.EffectDone:
			said = "**done**; `choir effects compensate " + e.Effect + "` has a run undo it outside, if it can be"
		case o != "":
			said = fmt.Sprintf("**%s**", o)
		}
		items = append(items, fmt.Sprintf("- %s %s: %s\n", code(e.Target), code(e.What), said))
	}
	if len(items) == 0 {
		return ""
	}
	return "\n### Outside\n\nNo checkpoint undoes this.\n\n" + tail(items, maxOutside, "- … %d earlier\n")
}

func heading(t *run.Task) string {
	status, attempt := run.TaskRequested, t.Now.Number
	switch {
	case t.Ended():
		status, attempt = string(t.Newest.Status), t.Newest.Attempt
	case t.Now.Number > 0:
		status = run.TaskRunning
	}
	goal, _, _ := strings.Cut(strings.TrimSpace(t.Request.Goal), "\n")
	if goal = line(goal, len(goal)); len(goal) > maxGoal {
		goal = contract.Clip(goal, maxGoal) + "…"
	}
	s := fmt.Sprintf("- **%s**: %s", strings.ReplaceAll(status, "_", " "), goal)
	if attempt > 1 {
		s += fmt.Sprintf(" (attempt %d)", attempt)
	}
	return s + "\n"
}

// lookedAt says what a person decided about the work before it was published, if anybody did.
func lookedAt(v *contract.Reviewed) string {
	if v == nil {
		return ""
	}
	var b strings.Builder
	took := "took all of it"
	switch {
	case v.Decision == contract.ReviewDiscard:
		took = "wanted none of it"
	case len(v.Only) > 0:
		took = fmt.Sprintf("took %d %s of it, whole or in part", len(v.Only), plural(len(v.Only), "path"))
	}
	fmt.Fprintf(&b, "  - Looked at before it was published (%s, %s): %s\n", line(v.By, 100), v.At, took)
	for _, c := range v.Comments {
		at := ""
		if c.Path != "" {
			at = code(c.Path) + " "
		}
		if c.Line > 0 {
			at += fmt.Sprintf("line %d ", c.Line)
		}
		fmt.Fprintf(&b, "    - %s%s\n", at, line(c.Text, maxLine))
	}
	return b.String()
}

func evidence(t *run.Task) string {
	var b strings.Builder
	b.WriteString(heading(t))
	if !t.Ended() {
		if n := len(t.Reviews); n > 0 && t.Reviews[n-1].Answer == nil && t.Now.State == contract.AttemptReviewing {
			fmt.Fprintf(&b, "  - **Waits until you have looked at it**: %d %s. Nothing of it is live before.\n", t.Reviews[n-1].Paths, plural(t.Reviews[n-1].Paths, "path"))
		}
		return b.String()
	}
	r := t.Newest
	fmt.Fprintf(&b, "  - %s\n", line(r.Summary, 2*maxLine))
	if len(r.Changes) > 0 {
		added, removed := 0, 0
		var names []string
		for _, c := range r.Changes {
			added, removed = added+max(0, c.Added), removed+max(0, c.Removed)
			if len(names) < 8 {
				names = append(names, fmt.Sprintf("%s (%s, +%d −%d)", code(c.Path), c.Op, max(0, c.Added), max(0, c.Removed)))
			}
		}
		if more := len(r.Changes) - len(names); more > 0 {
			names = append(names, fmt.Sprintf("and %d more", more))
		}
		fmt.Fprintf(&b, "  - Changed %d %s (+%d −%d): %s\n", len(r.Changes), plural(len(r.Changes), "file"), added, removed, strings.Join(names, ", "))
	}
	commands := ran(t)
	if earlier := len(commands) - 10; earlier > 0 {
		fmt.Fprintf(&b, "  - … %d earlier %s\n", earlier, plural(earlier, "command"))
		commands = commands[earlier:]
	}
	for _, c := range commands {
		b.WriteString(command("Ran", c))
	}
	verdict := fmt.Sprintf("Verification (%s): **%s**", r.Verification.Profile, r.Verification.Status)
	if r.Verification.Reason != "" {
		verdict += ", " + line(r.Verification.Reason, 2*maxLine)
	}
	fmt.Fprintf(&b, "  - %s\n", verdict)
	said := r.Verification.Said
	for _, s := range said[:min(10, len(said))] {
		fmt.Fprintf(&b, "  - To know: %s\n", line(s, maxLine))
	}
	if more := len(said) - 10; more > 0 {
		fmt.Fprintf(&b, "  - … and %d more of these\n", more)
	}
	for _, c := range r.Verification.Checks[:min(10, len(r.Verification.Checks))] {
		b.WriteString(command(fmt.Sprintf("Check %s: %s,%s", line(c.Name, 80), c.Status, tests(c)), c.Command))
	}
	if r.Head != "" {
		fmt.Fprintf(&b, "  - Checkpoint %s\n", code(r.Head[:min(12, len(r.Head))]))
	}
	b.WriteString(lookedAt(r.Reviewed))
	if r.Kept != nil && r.Head != "" {
		fmt.Fprintf(&b, "  - All that it wrote is kept as %s (%d %s)\n", code(r.Kept.Commit), r.Kept.Paths, plural(r.Kept.Paths, "path"))
	} else if r.Kept != nil {
		fmt.Fprintf(&b, "  - Not published; what it wrote is kept as %s (%d %s)\n", code(r.Kept.Commit), r.Kept.Paths, plural(r.Kept.Paths, "path"))
	}
	for _, o := range r.Overlaps {
		names := make([]string, len(o.Paths))
		for i, p := range o.Paths {
			names[i] = code(p)
		}
		if o.More > 0 {
			names = append(names, fmt.Sprintf("and %d more", o.More))
		}
		fmt.Fprintf(&b, "  - Overlaps with task %s, merged in the order they ended: %s\n", code(o.Task), strings.Join(names, ", "))
	}
	for _, q := range r.Requests {
		fmt.Fprintf(&b, "  - %s: %s\n", requests[q.Type], line(q.Text, maxLine))
	}
	if len(r.Egress.Denied) > 0 {
		fmt.Fprintf(&b, "  - Refused network: %s\n", line(strings.Join(r.Egress.Denied, ", "), maxLine))
	}
	return b.String()
}

// ran returns the commands that ended in the attempt whose result is shown. The log has all of them, also those from before
// a restart; a result lists only the first.
func ran(t *run.Task) []contract.Command {
	if t.Now.Number != t.Newest.Attempt {
		return t.Newest.Commands
	}
	var all []contract.Command
	for _, c := range t.Calls {
		if c := t.Returns[c.Call].Command; c != nil {
			all = append(all, *c)
		}
	}
	if len(all) < len(t.Newest.Commands) {
		return t.Newest.Commands
	}
	return all
}

// requests says in words what a task asks.
var requests = map[contract.RequestType]string{
	contract.RequestBlocked: "Was blocked", contract.RequestApproval: "Wants approval", contract.RequestConflict: "Met a conflict", contract.RequestReprioritise: "Would put something first",
}

// tests says how many tests a check ran, and which program reported it.
func tests(c contract.Check) string {
	if c.Runner == "" {
		return ""
	}
	if c.Ran+c.Skipped == 0 {
		return " no test counted,"
	}
	s := fmt.Sprintf(" %d %s by %s", c.Ran, plural(c.Ran, "test"), line(c.Runner, 40))
	if c.Skipped > 0 {
		s += fmt.Sprintf(" and %d skipped", c.Skipped)
	}
	return s + ","
}

// command shows a command with its exit code, and the end of its output when
// it failed.
func command(verb string, c contract.Command) string {
	if len(c.Argv) == 0 {
		return fmt.Sprintf("  - %s nothing was run\n", verb)
	}
	s := fmt.Sprintf("  - %s %s: exit %d in %s\n", verb, code(strings.Join(c.Argv, " ")), c.ExitCode, (time.Duration(c.DurationMS) * time.Millisecond).String())
	if c.ExitCode != 0 {
		if out := strings.TrimSpace(c.Stdout + "\n" + c.Stderr); out != "" {
			s += fenced(end(out, maxOutput), "    ")
		}
	}
	return s
}

func result(status contract.RunStatus, r *contract.RunReported) string {
	if r == nil {
		return fmt.Sprintf("The run is %s.\n", status)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "**%s**, verification: %s\n\n%s", r.Status, r.Verified, prose(r.Summary))
	if r.Error != "" {
		b.WriteString("\nError: " + line(r.Error, 2*maxLine) + "\n")
	}
	if r.Checkpoint != "" {
		fmt.Fprintf(&b, "\nCheckpoint %s\n", code(r.Checkpoint[:min(12, len(r.Checkpoint))]))
	}
	return b.String()
}

// cost is what was used so far, and how long the run took once it has ended.
func cost(u contract.Usage, took time.Duration) string {
	s := fmt.Sprintf("%d tool %s, %d tokens in, %d out, $%.4f", u.ToolCalls, plural(u.ToolCalls, "call"), u.TokensIn, u.TokensOut, u.CostUSD)
	if u.TokensIn > 0 && u.TokensRepeated > 0 {
		s += fmt.Sprintf("; of what went in, %d%% was the request before's, %d%% was cached", 100*u.TokensRepeated/u.TokensIn, 100*u.TokensCached/u.TokensIn)
	}
	if took > 0 {
		s += ", " + took.Round(time.Second).String()
	}
	return s + "\n"
}

func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}

// head keeps the first items that fit, tail the last; more is shown in place of the others.
func head(items []string, limit int, more string) string {
	n, size := 0, 0
	for n < len(items) && size+len(items[n]) <= limit {
		size += len(items[n])
		n++
	}
	s := strings.Join(items[:n], "")
	if n < len(items) {
		s += fmt.Sprintf(more, len(items)-n)
	}
	return s
}

func tail(items []string, limit int, more string) string {
	rev := slices.Clone(items)
	slices.Reverse(rev)
	n, size := 0, 0
	for n < len(rev) && size+len(rev[n]) <= limit {
		size += len(rev[n])
		n++
	}
	s := strings.Join(items[len(items)-n:], "")
	if n < len(items) {
		s = fmt.Sprintf(more, len(items)-n) + s
	}
	return s
}

// line puts text on one line of at most max bytes. What a command was given may
// hold any bytes; a document may not.
func line(s string, max int) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "")
	return contract.Clip(strings.Join(strings.Fields(s), " "), max)
}

// end keeps the last max bytes of a text, from a character's start.
func end(s string, max int) string {
	if len(s) <= max {
		return s
	}
	s = s[len(s)-max:]
	for len(s) > 0 && !utf8.RuneStart(s[0]) {
		s = s[1:]
	}
	return "…" + s
}

// code shows text as inline code, whatever backticks it has.
func code(s string) string {
	s = line(s, maxLine)
	tick := strings.Repeat("`", longest(s, '`')+1)
	if strings.HasPrefix(s, "`") || strings.HasSuffix(s, "`") {
		s = " " + s + " "
	}
	return tick + s + tick
}

// fenced shows text as a code block that it can't end by itself.
func fenced(s, indent string) string {
	s = strings.Map(func(r rune) rune {
		if r == 0 || r == '\r' {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	fence := strings.Repeat("`", max(3, longest(s, '`')+1))
	var b strings.Builder
	b.WriteString(indent + fence + "\n")
	for l := range strings.SplitSeq(s, "\n") {
		b.WriteString(indent + l + "\n")
	}
	b.WriteString(indent + fence + "\n")
	return b.String()
}

func longest(s string, r rune) (n int) {
	run := 0
	for _, c := range s {
		if c == r {
			run++
			n = max(n, run)
		} else {
			run = 0
		}
	}
	return n
}

// prose shows Markdown that a model wrote. A line that would begin a section of this
// document, or be taken for one of its marks, is escaped.
func prose(s string) string {
	s = strings.TrimSpace(contract.Clip(strings.ReplaceAll(s, "\r\n", "\n"), maxProse))
	if s == "" {
		return "None.\n"
	}
	var b strings.Builder
	var f fence
	for l := range strings.SplitSeq(s, "\n") {
		f.next(l)
		if strings.HasPrefix(l, "#") && !f.open() {
			l = `\` + l
		}
		if strings.HasPrefix(l, markPrefix) {
			l = " " + l
		}
		b.WriteString(l + "\n")
	}
	if f.open() {
		b.WriteString(f.close() + "\n")
	}
	return b.String()
}
