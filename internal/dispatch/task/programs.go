package task

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/dispatch/catalogue"
	"choir.dev/choiros/internal/dispatch/loops"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/fault"
	story "choir.dev/choiros/internal/run"
)

// modelNote tells a task's model what its programs were granted.
const modelNote = `Programs in the box may use this computer's model: ANTHROPIC_BASE_URL, ANTHROPIC_API_KEY, OPENAI_BASE_URL and OPENAI_API_KEY are set for them. ` +
	`Whatever model they name, the computer's own answers, within this task's budget. The key is worth nothing anywhere else.`

// modelPath is the part of a box's requests that asks the model.
const modelPath = "/model/"

// newModelToken returns what the programs of one box ask the model with, or "" if the task was not granted it.
func (a *attempt) newModelToken() string {
	if !catalogue.ModelGranted(a.task) {
		return ""
	}
	return "choir-box-" + newFence()
}

// scope is on whose behalf the attempt asks a model: its loop, which may also wait for one, its judge and the programs
// in its box.
func (a *attempt) scope() ports.ModelScope {
	return ports.ModelScope{Run: a.ref.Run, Task: a.ref.Task, Role: contract.KindAssociate, Model: a.model, Effort: a.effort,
		Budget: a.run.Budget(), TaskBudget: a.task.Budget, Chosen: a.run.Chosen}
}

// resolve returns the model that answers the attempt now.
func (a *attempt) resolve(ctx context.Context) (provider, name string, err error) {
	chosen, _ := a.run.Chosen()
	return a.host.Models.Resolve(ctx, contract.KindAssociate, chosen)
}

// programs serves what a task's box asks of the host: the model, if its programs have a token for it, and
// out for the rest. What they ask the model ends with the attempt's other requests, and so at the latest
// with the box.
func (a *attempt) programs(token string, out http.Handler) http.Handler {
	var model http.Handler
	if token != "" || defence.Off(defence.InwardGrant) {
		model = a.requests.Guard(http.StripPrefix(strings.TrimSuffix(modelPath, "/"), a.host.Models.Inward(a.scope(), ports.ModelGrant{Token: cmp.Or(token, newFence()), Ready: a.modelReady})))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodConnect || !strings.HasPrefix(r.URL.Path, modelPath):
			out.ServeHTTP(w, r)
		case model == nil:
			loops.Refuse(w, 0, fault.New("", fault.Denied, "", errors.New("this task was not granted the model: its tools do not list "+catalogue.Model)))
		default:
			model.ServeHTTP(w, r)
		}
	})
}

// modelReady returns why programs may not ask the model now. Loops wait while their run is paused; a program
// is told, because it can't know how long a person pauses.
func (a *attempt) modelReady() error {
	if a.run.Context().Err() != nil {
		return fault.New("", fault.Denied, "", errors.New("the run has ended"))
	}
	paused := false
	a.run.Story(func(s *story.Run) { paused = s.Paused })
	if paused {
		return fault.New("", fault.Unavailable, "", errors.New("the run is paused by its user"))
	}
	return nil
}
