package run

import "choir.dev/choiros/contract"

// View is what of a run every reducer must agree on: the cases in testdata hold
// it for this one, for the state's tables and for the desktop's.
type View struct {
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
	Questions []QuestionView              `json:"questions"`
	Tasks     []TaskView                  `json:"tasks"`
}

// QuestionView is a question, and its answer.
type QuestionView struct {
	ID     string `json:"id"`
	Answer string `json:"answer"`
}

// TaskView is a task of a View.
type TaskView struct {
	Task         string                      `json:"task"`
	Kind         contract.TaskKind           `json:"kind"`
	Goal         string                      `json:"goal"`
	Status       string                      `json:"status"`
	Attempt      int                         `json:"attempt"`
	Verification contract.VerificationStatus `json:"verification"`
}

// View is the run's.
func (r *Run) View() View {
	v := View{Status: r.Status, Reason: r.Reason, Prompt: r.Prompt.Text, Objective: r.Objective, Plan: []string{}, Provider: r.Provider, Model: r.Model,
		Document: r.Document, Summary: r.Summary, Error: r.Error, Verified: r.Verified,
		TokensIn: r.Usage.TokensIn, TokensOut: r.Usage.TokensOut, CostUSD: r.Usage.CostUSD, StoodMS: r.StoodMS, Questions: []QuestionView{}, Tasks: []TaskView{}}
	for _, p := range r.Plan {
		v.Plan = append(v.Plan, string(p.Status)+" "+p.Text)
	}
	for _, q := range r.Questions {
		v.Questions = append(v.Questions, QuestionView{q.ID, q.Answer})
	}
	for _, t := range r.Tasks {
		v.Tasks = append(v.Tasks, TaskView{t.Request.ID, t.Request.Kind, t.Request.Goal, t.Status, t.TaskHead.Attempt, t.Verification})
	}
	return v
}
