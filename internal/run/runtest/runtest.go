// Package runtest has what tests compare the reducers of runs with. Only tests import it.
package runtest

import (
	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/run"
)

// Outcome is what every reducer must agree on about a run: the cases in run's testdata check
// it for the reducer of package run, the state's tables and the desktop's reducer.
type Outcome struct {
	Status    contract.RunStatus          `json:"status"`
	Reason    string                      `json:"reason"`
	Prompt    string                      `json:"prompt"`
	Objective string                      `json:"objective"`
	Plan      []string                    `json:"plan"`
	Provider  string                      `json:"provider"`
	Model     string                      `json:"model"`
	Document  string                      `json:"document"`
	Summary   string                      `json:"summary"`
	Error     string                      `json:"error"`
	Verified  contract.VerificationStatus `json:"verified"`
	TokensIn  int64                       `json:"tokens_in"`
	TokensOut int64                       `json:"tokens_out"`
	CostUSD   float64                     `json:"cost_usd"`
	StoodMS   int64                       `json:"stood_ms"`
	Waits     []Awaited                   `json:"waits,omitempty"`
	Fallback  string                      `json:"fallback,omitempty"`
	Direct    string                      `json:"direct,omitempty"`
	Questions []Asked                     `json:"questions"`
	Tasks     []Step                      `json:"tasks"`
}

// Awaited is a model that a loop waits for.
type Awaited struct {
	Task  string `json:"task"`
	Model string `json:"model"`
	Code  string `json:"code"`
	Since string `json:"since"`
}

// AwaitedOf returns what loops wait for.
func AwaitedOf(waits []run.ModelWait) (out []Awaited) {
	for _, w := range waits {
		out = append(out, Awaited{w.Task, w.Provider + "/" + w.Model, w.Code, w.Since})
	}
	return out
}

// Asked is a question, and its answer.
type Asked struct {
	ID     string `json:"id"`
	Answer string `json:"answer"`
}

// Step is a task.
type Step struct {
	Task         string                      `json:"task"`
	Kind         contract.TaskKind           `json:"kind"`
	Goal         string                      `json:"goal"`
	Status       string                      `json:"status"`
	Attempt      int                         `json:"attempt"`
	Verification contract.VerificationStatus `json:"verification"`
}

// Of returns what the reducer of package run says about a run.
func Of(r *run.Run) Outcome {
	v := Outcome{Status: r.Status, Reason: r.Reason, Prompt: r.Prompt.Text, Objective: r.Objective, Plan: []string{}, Provider: r.Provider, Model: r.Model,
		Document: r.Document, Summary: r.Summary, Error: r.Error, Verified: r.Verified,
		TokensIn: r.Usage.TokensIn, TokensOut: r.Usage.TokensOut, CostUSD: r.Usage.CostUSD, StoodMS: r.StoodMS,
		Waits: AwaitedOf(r.Waits), Fallback: r.Fallback, Direct: r.Direct, Questions: []Asked{}, Tasks: []Step{}}
	for _, p := range r.Plan {
		v.Plan = append(v.Plan, string(p.Status)+" "+p.Text)
	}
	for _, q := range r.Questions {
		v.Questions = append(v.Questions, Asked{q.ID, q.Answer})
	}
	for _, t := range r.Tasks {
		v.Tasks = append(v.Tasks, Step{t.Request.ID, t.Request.Kind, t.Request.Goal, t.Status, t.TaskHead.Attempt, t.Verification})
	}
	return v
}
