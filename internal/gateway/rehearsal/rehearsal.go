package rehearsal

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/gateway/provider"
	"choir.dev/choiros/internal/lazy"
)

// Notice is in every report of a run, once, and nothing of its tasks has it: it says that no model was used, and how to connect one.
const Notice = "This was a rehearsal: no model is connected, so a plan from a file was played and nothing was understood. " +
	"To connect a model, store a key with `choir secrets set ANTHROPIC_API_KEY` (or `OPENAI_API_KEY`), or start a local model server such as Ollama, then prompt again."

// These are the roles' names on the host.
const (
	roleDirector  = "director"
	roleAssociate = "associate"
)

// Provider implements provider.Provider. It has no state between calls: the next step follows from
// the conversation alone.
type Provider struct {
	plans []*Plan
}

// Plans returns id, title and examples of every plan, in the order they are tried.
func (p *Provider) Plans() []*Plan { return p.plans }

func (p *Provider) byID(id string) *Plan {
	for _, plan := range p.plans {
		if plan.ID == id {
			return plan
		}
	}
	return nil
}

// Stream implements provider.Provider.
func (p *Provider) Stream(_ context.Context, c provider.Call, sink provider.Sink) (provider.Finish, error) {
	t := turn{sink: sink}
	conv := follow(c.Request.Messages)
	switch role(c) {
	case roleDirector:
		p.director(&t, conv)
	case roleAssociate:
		p.associate(&t, conv)
	default:
		t.say("ready (rehearsal: no model is connected)")
	}
	stop := contract.StopEnd
	if t.calls > 0 {
		stop = contract.StopToolUse
	}
	return provider.Finish{Stop: stop, Usage: provider.Usage{Known: true}}, t.err
}

// role returns the role that the host gave, and otherwise deduces it from the offered tools.
func role(c provider.Call) string {
	if c.Role == roleDirector || c.Role == roleAssociate {
		return c.Role
	}
	for _, t := range c.Request.Tools {
		switch t.Name {
		case "report":
			return roleDirector
		case "finish":
			return roleAssociate
		}
	}
	return ""
}

// turn writes one answer.
type turn struct {
	sink  provider.Sink
	calls int
	err   error
}

func (t *turn) say(s string) {
	if t.err == nil {
		t.err = t.sink.Text(s)
	}
}

func (t *turn) call(tool string, args any) {
	b, err := json.Marshal(args)
	if t.err == nil {
		t.err = err
	}
	if t.err == nil {
		t.err = t.sink.Call(t.calls, "", tool)
	}
	if t.err == nil {
		t.err = t.sink.Args(t.calls, string(b))
	}
	t.calls++
}

// conversation is the conversation so far.
type conversation struct {
	wake  string // the first message, which says what the loop was started for
	calls []done
}

type done struct {
	name     string
	answered bool
	isError  bool
	content  string
}

func follow(messages []contract.Message) conversation {
	var c conversation
	index := map[string]int{}
	for i, m := range messages {
		for _, p := range m.Parts {
			switch {
			case p.Call != nil:
				index[p.Call.ID] = len(c.calls)
				c.calls = append(c.calls, done{name: p.Call.Name})
			case p.Return != nil:
				if n, ok := index[p.Return.ID]; ok {
					d := &c.calls[n]
					d.answered, d.isError, d.content = true, p.Return.IsError, p.Return.Content
				}
			case i == 0:
				c.wake += p.Text + "\n"
			}
		}
	}
	return c
}

// last returns the newest call of a tool, or nil.
func (c conversation) last(tool string) *done {
	for i := len(c.calls) - 1; i >= 0; i-- {
		if c.calls[i].name == tool {
			return &c.calls[i]
		}
	}
	return nil
}

var heading = lazy.Regexp(`(?m)^#{1,6}[ \t]+(.+?)[ \t:]*$`)

// section returns the text under the first heading with one of the names, else
// the whole text.
func section(text string, names ...string) string {
	all := heading().FindAllStringSubmatchIndex(text, -1)
	for i, m := range all {
		for _, n := range names {
			if strings.EqualFold(text[m[2]:m[3]], n) {
				end := len(text)
				if i+1 < len(all) {
					end = all[i+1][0]
				}
				return strings.TrimSpace(text[m[1]:end])
			}
		}
	}
	return strings.TrimSpace(text)
}

// director plays the planning loop: first the plan and its task, then the report.
func (p *Provider) director(t *turn, c conversation) {
	prompt := section(c.wake, "Prompt", "The prompt", "Request", "Objective")
	if d := c.last("delegate"); d != nil {
		p.report(t, prompt, d)
		return
	}
	var wrong error
	for _, plan := range p.plans {
		values, ok, err := plan.match(prompt)
		if !ok {
			continue
		}
		if err != nil {
			if wrong == nil {
				wrong = fmt.Errorf("plan %q: %w", plan.Title, err)
			}
			continue
		}
		d := plan.Director
		t.say("Rehearsal, plan “" + plan.Title + "”.")
		d.write(t, values, "open")
		task := map[string]any{
			"kind": kind(d), "goal": goal(plan, fill(d.Goal, values), prompt),
			"tools": d.Tools, "on_failure": "rollback", "want": map[string]any{"diff": true, "logs": true},
		}
		if d.Document != "" {
			task["document"] = fill(d.Document, values)
		}
		if d.Verify != "" {
			task["verify"] = map[string]any{"profile": d.Verify}
		}
		if d.Egress != "" {
			task["egress"] = map[string]any{"profile": d.Egress}
		}
		t.call("delegate", map[string]any{"tasks": []any{task}})
		return
	}
	p.unknown(t, prompt, wrong)
}

// write writes the plan to the run's document, with one status for all its steps.
func (d Director) write(t *turn, values map[string]string, status string) {
	steps := make([]map[string]string, len(d.Plan))
	for i, s := range d.Plan {
		steps[i] = map[string]string{"text": fill(s, values), "status": status}
	}
	t.call("revise_plan", map[string]any{"objective": fill(d.Objective, values), "plan": steps})
}

func kind(d Director) string {
	if d.Kind == "" {
		return "agent"
	}
	return d.Kind
}

const goalMark = "Rehearsal plan: "

// goal passes plan and prompt to the Associate in the goal of its task, as the provider has no
// state.
func goal(plan *Plan, text, prompt string) string {
	quoted, err := json.Marshal(prompt)
	if err != nil { // a string can always be encoded
		quoted = []byte(`""`)
	}
	return text + "\n\n" + goalMark + plan.ID + "\nPrompt: " + string(quoted)
}

var goalPattern = lazy.Regexp(`(?m)^` + goalMark + `([a-z0-9-]+)\r?\nPrompt: ("(?:[^"\\\n]|\\.)*")`)

func (p *Provider) unknown(t *turn, prompt string, wrong error) {
	var b strings.Builder
	if wrong != nil {
		fmt.Fprintf(&b, "I could not do this (%v).\n\n", wrong)
	} else {
		fmt.Fprintf(&b, "I don't understand “%s”.\n\n", cut(oneLine(prompt), 200))
	}
	b.WriteString("I only know these plans:\n\n")
	for _, plan := range p.plans {
		fmt.Fprintf(&b, "- %s, such as “%s”\n", plan.Title, plan.Examples[0])
	}
	b.WriteString("\n" + Notice)
	t.call("report", map[string]any{"status": "failed", "summary": b.String()})
}

// statuses finds the tasks' statuses in the result of delegate, in lines such as "task ID (agent)
// ok: goal".
var statuses = lazy.Regexp(`(?m)^task \S+ \([a-z]+\) ([a-z_]+):`)

// summaries finds the Associate's summaries in the result of delegate.
var summaries = lazy.Regexp(`(?ms)^  summary: (.*?)(?:^  (?:verification|changed|checkpoint|it asks|it suggests): |\z)`)

func (p *Provider) report(t *turn, prompt string, d *done) {
	good := d.answered && !d.isError
	found := statuses().FindAllStringSubmatch(d.content, -1)
	for _, m := range found {
		good = good && m[1] == "ok"
	}
	good = good && len(found) > 0
	text := "The task did not succeed:\n\n" + quote(cut(d.content, 3000))
	status := "failed"
	if good {
		status, text = "done", "The task is done."
	} else if !d.answered {
		text = "The task's outcome is not known."
	}
	for _, plan := range p.plans {
		if values, ok, err := plan.match(prompt); ok && err == nil {
			plan.Director.write(t, values, status)
			if good {
				if m := summaries().FindStringSubmatch(d.content); m != nil {
					values["summary"] = strings.TrimSpace(m[1])
				}
				text = fill(plan.Director.Done, values)
			}
			break
		}
	}
	t.call("report", map[string]any{"status": status, "summary": text + "\n\n" + Notice})
}

// associate plays the executing loop: the plan's steps one after the other.
func (p *Provider) associate(t *turn, c conversation) {
	fail := func(why string) {
		t.call("finish", map[string]any{"status": "failed", "summary": why})
	}
	m := goalPattern().FindStringSubmatch(c.wake)
	var plan *Plan
	var prompt string
	if m != nil {
		plan = p.byID(m[1])
		if json.Unmarshal([]byte(m[2]), &prompt) != nil {
			plan = nil
		}
	}
	if plan == nil {
		fail("The task's goal names no plan that this rehearsal has.")
		return
	}
	values, ok, err := plan.match(prompt)
	if !ok || err != nil {
		fail(fmt.Sprintf("The prompt does not fit plan %s: %v.", plan.ID, err))
		return
	}
	n := 0
	for _, call := range c.calls {
		if call.name == "finish" {
			continue
		}
		if n = plan.next(n, values); n >= len(plan.Associate.Steps) {
			break
		}
		step := plan.Associate.Steps[n]
		if call.name != step.Tool {
			fail(fmt.Sprintf("The conversation does not follow plan %s: step %d is %s, not %s.", plan.ID, n+1, step.Tool, cut(call.name, 64)))
			return
		}
		if !call.answered || call.isError || (step.failIf != nil && step.failIf.MatchString(call.content)) {
			fail(fmt.Sprintf("Step %d (%s) did not succeed:\n\n%s", n+1, step.Tool, quote(cut(call.content, 3000))))
			return
		}
		found := map[string]string{}
		for name, expr := range step.Capture {
			got, err := step.capture(expr, values, call.content)
			if err != nil || got == nil {
				fail(fmt.Sprintf("Step %d (%s): what the plan looks for (%s) is not there.", n+1, step.Tool, name))
				return
			}
			found[name] = *got
		}
		maps.Copy(values, found)
		n++
		values[fmt.Sprintf("return_%d", n)] = quote(cut(call.content, 3000))
	}
	if n = plan.next(n, values); n == len(plan.Associate.Steps) {
		t.call("finish", map[string]any{"status": "ok", "summary": fill(plan.Associate.Summary, values)})
		return
	}
	step := plan.Associate.Steps[n]
	args, isMap := fillAny(step.Args, values).(map[string]any)
	if !isMap || args == nil {
		args = map[string]any{}
	}
	t.call(step.Tool, args)
}

func quote(s string) string { return "```\n" + strings.ReplaceAll(s, "```", "'''") + "\n```" }

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
