package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/crash"
	"choir.dev/choiros/internal/director"
	"choir.dev/choiros/internal/dispatch/catalogue"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/dispatch/summary"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/library"
	story "choir.dev/choiros/internal/run"
)

// maxSentences is how many sentences a small prompt has at most. Who asks for more asks for several things.
const maxSentences = 2

// direct returns why a prompt goes to one Associate at once, "" if a Director plans it: what its user asked for,
// or else whether it is small. The rehearsal plays plans, so it always has a Director. This is asked once for
// each run; afterwards the log says it.
func (r *run) direct(ctx context.Context) (string, error) {
	p := r.story.Prompt
	why := ""
	switch {
	case p.Summarise != "":
		why = "its user asked for a summary of one thing"
	case p.Route == contract.RouteDirect:
		why = "its user asked for that"
	case p.Route == "" && p.Continues == "":
		why = small(p.Text, r.dispatcher.options.DirectWords)
	}
	if why == "" {
		return "", nil
	}
	for _, role := range []contract.ActorKind{contract.KindAssociate, contract.KindDirector} {
		provider, _, err := r.dispatcher.options.Models.Resolve(ctx, role, p.Model)
		if err != nil {
			return "", err
		}
		if provider == ports.Rehearsal {
			return "", nil
		}
	}
	return why, nil
}

// small returns why a prompt is small, "" if it is not: one line of at most two sentences, and of at most so many
// words. A text of lines, or of many sentences, asks for several things or explains something.
func small(text string, most int) string {
	text = strings.TrimSpace(text)
	words := words(text)
	if most <= 0 || words > most || strings.ContainsAny(text, "\n\r") || sentences(text) > maxSentences {
		return ""
	}
	return fmt.Sprintf("its prompt is small: one line, words: %d of at most %d", words, most)
}

// words counts words. Where a script has no spaces between them, two characters are about one.
func words(text string) int {
	n := 0
	for _, r := range text {
		if unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai) {
			n++
		}
	}
	return len(strings.Fields(text)) + n/2
}

// sentences counts the parts of a text that end with a mark of punctuation before a space, or with its end.
func sentences(text string) int {
	n, runes := 1, []rune(text)
	for i, r := range runes[:max(len(runes)-1, 0)] {
		if strings.ContainsRune("。！？；", r) || strings.ContainsRune(".!?;", r) && unicode.IsSpace(runes[i+1]) {
			n++
		}
	}
	return n
}

// How the task of a prompt that nobody planned is to be done.
var unplanned = []string{
	"What the user asks for is done, whole, and nothing else.",
	"The summary of finish is what the user reads: it says, in their language, what was done and what was not, and answers what they asked.",
	"Nobody has planned this. If it needs a plan of several tasks, the network, the computer's history of checkpoints or a decision of the user, then don't do without: finish with failed or needs_input as soon as you know, and say in suggested_next what it needs. A Director goes on from there, with what you leave in the tree.",
}

// How a summary is to be done, beside that.
var summarised = []string{
	"The whole of it was read, or the document says which part was not.",
	"Every statement about it in the document has a reference to a citation of it, which says what is stated.",
	"The document has a title, says in its first lines what is summarised, from where and of when, and is a tenth as long as its source, at most two pages.",
}

// summarising is the goal of a task that summarises something for a user, who said it in words.
func summarising(what, words string) string {
	how := "Read it"
	if strings.Contains(what, "://") {
		how = "Read it with web_fetch"
	}
	return fmt.Sprintf("Summarise %s in the document, for somebody who has not read it. %s from beginning to end, record what matters with cite, and write the document from what you recorded.\n\nThe user said: %s", what, how, words)
}

// alone has one Associate do what the prompt says, if the log says that it is done so, and returns the report that
// follows from its result. over is false if a Director has to take the run over.
func (r *run) alone(ctx context.Context) (rep director.Report, over bool, err error) {
	r.mu.Lock()
	direct, tasks, taken := r.story.Direct != "", len(r.story.Tasks), len(r.story.Turns) > 0 || len(r.story.Tasks) > 1
	r.mu.Unlock()
	if !direct || taken {
		return rep, false, nil
	}
	if err := r.unpaused(ctx); err != nil {
		return rep, false, err
	}
	if tasks == 0 {
		if err := r.requestAlone(ctx); err != nil {
			return rep, false, err
		}
	}
	ended := func(s *story.Run) bool { return s.Tasks[0].Ended() && r.settled[s.Tasks[0].Request.ID] }
	if err := r.Until(ctx, ended); err != nil {
		return rep, false, err
	}
	if err := r.unpaused(ctx); err != nil {
		return rep, false, err
	}
	edited := r.doc.Edited(ctx) != ""
	var why string
	r.lastWord(func() bool {
		rep, why = summary.Alone(r.story)
		if why == "" && edited {
			why = "its user wrote into the run's document, which no Associate reads"
		}
		return why == ""
	})
	if why == "" {
		return rep, true, nil
	}
	return rep, false, r.handOver(ctx, why)
}

// requestAlone requests the one task, which is checked as one of a Director's is.
func (r *run) requestAlone(ctx context.Context) error {
	wanted := map[string]any{"kind": contract.KindAgent, "goal": r.story.Prompt.Text, "acceptance": unplanned, "verify": contract.VerifySpec{Profile: contract.VerifyStandard}}
	kind := contract.DirectorTask{Kind: contract.KindAgent, Egress: contract.EgressSpec{Profile: contract.EgressNone}}
	if r.dispatcher.options.Memory != nil {
		wanted["acceptance"] = append(slices.Clone(unplanned), "What the user says holds beyond this (always, never, from now on) is kept with remember, in their words.")
	}
	if what := r.story.Prompt.Summarise; what != "" {
		kind.Kind = contract.KindWrite
		wanted["document"], wanted["goal"] = library.SummaryPath(what), summarising(what, r.story.Prompt.Text)
		wanted["acceptance"] = append(slices.Clone(summarised), unplanned...)
	}
	wanted["kind"] = kind.Kind
	wanted["tools"] = slices.DeleteFunc(r.dispatcher.tools.ToolNames(kind.Kind), func(name string) bool {
		t, ok := r.dispatcher.tools.Lookup(name)
		return !ok || catalogue.Permitted(kind, t) != nil
	})
	raw, err := json.Marshal(wanted)
	if err != nil {
		return err
	}
	t, err := r.accept(ctx, raw, 0)
	if err != nil {
		return fault.Wrap("dispatch.direct", err)
	}
	_, err = r.Append(ctx, contract.Draft{ID: contract.DeriveID(t.ID, "requested"), Actor: contract.System(), Type: "task.requested",
		Subject: t.ID, Task: t.ID, Causation: r.story.Cause, Data: &contract.TaskRequested{Task: t}})
	if err != nil {
		return err
	}
	crash.At("dispatch.task.requested")
	r.work(t.ID)
	return nil
}

// handOver says in the log that a Director takes the run over, and why; once.
func (r *run) handOver(ctx context.Context, why string) error {
	reason := summary.OneLine("a Director takes it over: "+why, 2000)
	r.mu.Lock()
	said := r.story.Status == contract.RunPlanning && r.story.Reason == reason
	r.mu.Unlock()
	if said {
		return nil
	}
	return r.moveTo(ctx, contract.RunPlanning, reason)
}

// tried is what a Director is told of the task that was to be all of its run; "" if there was none.
func (r *run) tried() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.story.Direct == "" || len(r.story.Tasks) == 0 {
		return ""
	}
	return summary.Tried(r.story)
}

// Before implements task.Run: who works at a prompt that nobody planned is told what a Director would be.
func (r *run) Before(ctx context.Context, id string) (string, error) {
	r.mu.Lock()
	only := r.story.Direct != "" && r.story.Tasks[0].Request.ID == id
	r.mu.Unlock()
	if !only {
		return "", nil
	}
	return r.recent(ctx)
}
