package state

import (
	"context"
	"encoding/json"

	"choir.dev/choiros/contract"
)

// projection applies one event's data to the tables. An error made by poisoned
// or a constraint means that the event, not the machine, is at fault.
type projection func(ctx context.Context, w *writer, e contract.Event, p contract.Payload) error

// on adapts a projection of one payload type.
func on[T any](f func(ctx context.Context, w *writer, e contract.Event, p *T) error) projection {
	return func(ctx context.Context, w *writer, e contract.Event, p contract.Payload) error {
		v, ok := any(p).(*T)
		if !ok {
			return poisoned("the data are a %T", p)
		}
		return f(ctx, w, e, v)
	}
}

// projections maps every projected event type to what it does. A test walks
// contract.Types and finds each either here or marked as not projected.
var projections = map[string]projection{
	"computer.created":      on(computerCreated),
	"computer.renamed":      on(computerRenamed),
	"computer.woken":        on(computerWoken),
	"prompt.submitted":      on(promptSubmitted),
	"run.started":           on(runStarted),
	"run.planned":           on(runPlanned),
	"run.moved":             on(runMoved),
	"run.stood":             on(runStood),
	"run.steered":           on(runSteered),
	"model.waiting":         on(modelWaiting),
	"model.resumed":         on(modelResumed),
	"model.switched":        on(modelSwitched),
	"run.commanded":         on(runCommanded),
	"run.reported":          on(runReported),
	"question.asked":        on(questionAsked),
	"question.answered":     on(questionAnswered),
	"task.requested":        on(taskRequested),
	"task.started":          on(taskStarted),
	"attempt.moved":         on(attemptMoved),
	"repair.requested":      on(repairRequested),
	"review.requested":      on(reviewRequested),
	"review.answered":       on(reviewAnswered),
	"task.finished":         on(taskFinished),
	"tool.called":           on(toolCalled),
	"tool.returned":         on(toolReturned),
	"verification.finished": on(verificationFinished),
	"command.started":       on(commandStarted),
	"command.finished":      on(commandFinished),
	"file.written":          on(fileWritten),
	"file.removed":          on(fileRemoved),
	"repository.added":      on(repositoryAdded),
	"checkpoint.created":    on(checkpointCreated),
	"checkpoint.restored":   on(checkpointRestored),
	"publish.started":       on(publishStarted),
	"publish.finished":      on(publishFinished),
	"document.revised":      on(documentRevised),
	"document.proposed":     on(documentProposed),
	"proposal.resolved":     on(proposalResolved),
	"memory.remembered":     on(memoryRemembered),
	"memory.forgotten":      on(memoryForgotten),
	"memory.restored":       on(memoryRestored),
	"effect.intended":       on(effectIntended),
	"effect.ended":          on(effectEnded),
	"effect.resolved":       on(effectResolved),
	"source.added":          on(sourceAdded),
	"citation.recorded":     on(citationRecorded),
	"theme.changed":         on(themeChanged),
	"egress.allowed":        on(egressDecided),
	"egress.denied":         on(egressDecided),
	"egress.metered":        on(egressMetered),
	"approval.requested":    on(approvalRequested),
	"approval.answered":     on(approvalAnswered),
	"usage.metered":         on(usageMetered),
	"desktop.built":         on(desktopBuilt),
	"window.opened":         on(windowOpened),
	"window.moved":          on(windowMoved),
	"window.focused":        on(windowFocused),
	"window.closed":         on(windowClosed),
}

// must runs a statement that has to change a row; otherwise what the event is about does
// not exist, and the event is poison.
func must(ctx context.Context, w *writer, missing string, query string, args ...any) error {
	n, err := w.exec(ctx, query, args...)
	if err == nil && n == 0 {
		return poisoned("%s", missing)
	}
	return err
}

// do runs a statement that may change nothing.
func do(ctx context.Context, w *writer, query string, args ...any) error {
	_, err := w.exec(ctx, query, args...)
	return err
}

// js encodes a value for a JSON column. Contract types always encode.
func js(v any) (string, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return "", poisoned("can't be encoded: %v", err)
	}
	return string(b), nil
}

// list encodes a list for a JSON column, an empty one as [].
func list[T any](v []T) (string, error) {
	if len(v) == 0 {
		return "[]", nil
	}
	return js(v)
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
