package harness

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/crash"
	"choir.dev/choiros/internal/fault"
)

// summarise asks a model to sum up what will be left out. Its sections are fixed, so that nothing is forgotten
// because the model did not think of it.
const summarise = `The conversation has grown long: what was said so far will be left out of it, except for the newest turns. Answer with a summary from which you can go on, and call no tool. Copy paths, commands, errors and ids word for word. What was changed, run and checked is added from the computer's log; write what the log can't know. Use exactly these sections:
## Goal
## Acceptance
## Plan (what is done, what is next)
## Decisions, and why
## Tried, and what came of it
## Open questions`

// Shares of Limits.Context: when a compaction begins, and how much of it newest turns, the summary and the log's facts
// may have behind it.
const (
	compactAt    = 0.75
	keepShare    = 0.25
	summaryShare = 0.10
	factsShare   = 0.20
)

// fewTurns are not compacted before the whole of Limits.Context is used up.
const fewTurns = 4

// maxMessages bounds the messages of a request, below what the contract takes.
const maxMessages = 1500

// full reports whether a request with so much more to tell has reached the size at which the history is compacted.
func (l *loop) full(told string) bool {
	limit := float64(l.Limits.Context)
	if len(l.past.turns) >= fewTurns { // fewer would be summed up again and again
		limit *= compactAt
	}
	return float64(l.fixed()+l.past.size(l.turnLimit())+len(told)) > limit || 2*len(l.past.turns) > maxMessages
}

// fixed is what every request holds beside messages.
func (l *loop) fixed() int {
	n := len(l.System)
	for _, s := range l.specs {
		n += len(s.Name) + len(s.Description) + len(s.Schema)
	}
	return n
}

// turnLimit bounds one turn in a request.
func (l *loop) turnLimit() int { return l.Limits.Context / 3 }

// compact puts a summary of the model, and what the log knows, in the place of the older turns. It reports whether
// that made room. hard says that the service called the request too long, so the model can't be asked with all of it.
func (l *loop) compact(ctx context.Context, hard bool) (bool, Outcome, error) {
	keep, size := len(l.past.turns), 0
	for keep > 0 {
		// The newest turn stays: the model waits for its returns.
		size += sizeOf(fit(l.past.turns[keep-1], l.turnLimit())) + len(l.past.turns[keep-1].Told)
		if keep < len(l.past.turns) && float64(size) > float64(l.Limits.Context)*keepShare {
			break
		}
		keep--
	}
	if hard && keep == 0 && len(l.past.turns) > 1 {
		keep = len(l.past.turns) - 1
	}
	if keep == 0 {
		return false, Outcome{}, nil
	}
	crash.At("compaction.asking")
	text, usage, out, err := l.summary(ctx, hard)
	if err != nil || out.Reason != "" {
		return false, out, err
	}
	facts := l.ownFacts(keep)
	most := int(float64(l.Limits.Context) * factsShare)
	if l.Facts != nil {
		if facts, err = l.Facts(ctx, most); err != nil {
			return false, Outcome{}, fault.Wrap("harness.Facts", err)
		}
	}
	said := text
	if said == "" {
		said = "(none: the model gave no summary)"
	}
	c := &contract.Compaction{Keeps: l.past.turns[keep].Index, Text: strings.TrimSpace(fmt.Sprintf(`# Where the work stands

%d earlier turns were left out here to make room. What follows is your own summary of them, and then what the computer's log knows of the work, word for word. Where they differ, the log is right.

# Your summary

%s

# From the log

%s`, l.past.turns[keep].Index, Clip(said, int(float64(l.Limits.Context)*summaryShare)), Clip(facts, most)))}
	rec := Record{Index: l.index, Usage: usage, Compacted: c,
		Message: contract.Message{Role: contract.MessageAssistant, Parts: []contract.Part{{Text: Clip(said, l.Limits.Text)}}}}
	l.index++
	crash.At("compaction.summarised")
	if err := l.record(ctx, rec); err != nil {
		return false, Outcome{}, err
	}
	crash.At("compaction.recorded")
	l.past.compact(*c)
	return true, Outcome{}, nil
}

// summary asks the model. It is given less the second time, and a model that can't sum up leaves it to the log.
func (l *loop) summary(ctx context.Context, hard bool) (string, contract.Usage, Outcome, error) {
	turns, used := l.past.turns, contract.Usage{}
	for try := 0; try < 2; try++ {
		if hard || try > 0 {
			turns = turns[len(turns)/2:]
		}
		req := l.requestOf(l.past.messages(turns, l.turnLimit(), summarise))
		turn, err := l.askQuietly(ctx, req)
		if err == nil {
			u := turn.Usage
			u.ToolCalls, u.WallMS = 0, 0
			if u.Validate() == nil {
				used = used.Add(u)
				l.spent = l.spent.Add(u)
			}
			return strings.ToValidUTF8(strings.ReplaceAll(textOf(turn.Message), "\x00", "\uFFFD"), "\uFFFD"), used, Outcome{}, nil
		}
		if ctx.Err() != nil {
			return "", used, Outcome{}, fault.Wrap("harness.Run", context.Cause(ctx))
		}
		if what := l.over(ctx); what != "" {
			return "", used, overBudget(what), nil
		}
		var te *contract.TurnError
		if errors.As(err, &te) && te.Code == "budget" {
			return "", used, Outcome{Reason: Budget, Detail: Clip(te.Message, 1000)}, nil
		}
	}
	return "", used, Outcome{}, nil
}

// askQuietly asks for one turn within what is left of the time, and shows nobody its text.
func (l *loop) askQuietly(ctx context.Context, req contract.TurnRequest) (contract.Turn, error) {
	turnCtx, cancel := l.within(ctx)
	defer cancel()
	return l.Model.Turn(turnCtx, req, nil)
}

// ownFacts is what the turns themselves say of the work, for a loop whose host keeps no log of it.
func (l *loop) ownFacts(before int) string {
	var lines []string
	if l.past.compacted != "" {
		lines = append(lines, l.past.compacted)
	}
	for _, t := range l.past.turns[:before] {
		lines = append(lines, digest(t))
	}
	return strings.Join(lines, "\n")
}
