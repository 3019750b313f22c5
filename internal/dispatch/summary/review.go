package summary

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/harness"
	story "choir.dev/choiros/internal/run"
	"choir.dev/choiros/internal/view"
)

// Comments is what a loop is told whose work a person has looked at and wants otherwise.
func Comments(a contract.ReviewAnswered) string {
	var b strings.Builder
	b.WriteString("Not over: the user has looked at your work before it is published, and wants it changed. Your tree is as you left it. Go on from there, see to each comment, and end the task again; they look at it once more then.\n")
	for _, c := range a.Comments {
		b.WriteString("\n" + Comment(c) + "\n")
	}
	return harness.Clip(b.String(), maxTold)
}

// maxTold is what an event holds of it: more than contract.MaxComments.
const maxTold = 48 << 10

// Comment is one comment with what it is about.
func Comment(c contract.ReviewComment) string {
	at := ""
	switch {
	case c.Path != "" && c.Line > 0:
		at = fmt.Sprintf("%s:%d", OneLine(c.Path, 300), c.Line)
	case c.Path != "":
		at = OneLine(c.Path, 300)
	default:
		return "- " + strings.TrimSpace(c.Text)
	}
	if quote := strings.TrimSpace(c.Quote); quote != "" {
		at += " `" + OneLine(quote, 300) + "`"
	}
	return "- " + at + "\n  " + strings.ReplaceAll(strings.TrimSpace(c.Text), "\n", "\n  ")
}

// maxFailing bounds how many checks a person is told of whose choice failed them.
const maxFailing = 10

// Failing is what a person is told whose choice of the work failed its checks.
func Failing(v contract.Verification) string {
	text := "What was chosen of it fails its checks."
	n := 0
	for _, c := range v.Checks {
		if c.Status != contract.VerificationFail {
			continue
		}
		if n++; n > maxFailing {
			break
		}
		text += fmt.Sprintf("\n%s (%s), exit code %d: %s", c.Name, OneLine(strings.Join(c.Command.Argv, " "), 200), c.Command.ExitCode, OneLine(harness.Clip(c.Command.Stdout+" "+c.Command.Stderr, 600), 600))
	}
	return harness.Clip(text, 8<<10)
}

// ReviewOf is a review of a task as people see it, without the files.
func ReviewOf(s *story.Run, t *story.Task, r story.Review) view.Review {
	out := view.Review{Run: s.ID, Prompt: OneLine(s.Prompt.Text, 300), Task: t.Request.ID, Goal: t.Request.Goal, Kind: t.Request.Kind, Attempt: r.Attempt, Review: r.Review,
		Base: r.Base, Work: r.Work, Paths: r.Paths, Reason: r.Reason, Asked: r.Asked}
	if res := t.Now.Result; res != nil {
		out.Summary = res.Summary
	}
	if t.Now.Verification != nil {
		out.Verification = t.Now.Verification
	}
	if r.Answer != nil {
		out.Decision, out.By, out.Answered, out.Only, out.Comments = r.Answer.Decision, string(r.By.Name()), r.Answered, r.Answer.Only, r.Answer.Comments
	}
	return out
}

// TellReview says in a result what a person decided last of the reviews of its attempt.
func TellReview(res *contract.AssociateResult, reviews []story.Review) {
	reviews = slices.DeleteFunc(slices.Clone(reviews), func(r story.Review) bool { return r.Answer == nil })
	if len(reviews) == 0 {
		return
	}
	last := reviews[len(reviews)-1]
	k := last.Answer
	res.Reviewed = &contract.Reviewed{Decision: k.Decision, By: string(last.By.Name()), User: last.By.Account(), At: last.Answered.Format(time.RFC3339), Work: k.Work, Only: k.Only, Comments: k.Comments}
	said := "The user looked at it and took all of it."
	switch {
	case k.Decision == contract.ReviewRevise:
		said = "The user looked at it and sent it back."
	case k.Decision == contract.ReviewDiscard:
		said = "The user looked at it and wants none of it, so nothing was published."
	case len(k.Only) > 0:
		paths := map[string]bool{}
		for _, c := range k.Only {
			paths[c.Path] = true
		}
		said = fmt.Sprintf("The user looked at it and took a part of it: %d of %d changed files in whole or in part.", len(paths), last.Paths)
	}
	if k.Decision == contract.ReviewPublish && res.Status != contract.ResultOK {
		said += " It was not published."
	}
	for _, c := range k.Comments {
		said += "\n" + Comment(c)
	}
	res.Summary = harness.Clip(res.Summary, 16<<10) + "\n\n" + harness.Clip(said, 12<<10)
}
