package director

import (
	"encoding/json"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/harness"
	"choir.dev/choiros/internal/tool"
)

// MaxMessage bounds the body of POST /run, in bytes.
const MaxMessage = 16 << 20

// Message is the body of POST /run: one run. Turns are those that an interrupted Director
// recorded, and Spent what it used.
type Message struct {
	Run    string          `json:"run"`
	Prompt string          `json:"prompt"`
	Model  string          `json:"model,omitempty"`
	Budget contract.Budget `json:"budget"`
	// Tools are what the host offers the Director's model; the loop knows no others.
	Tools []tool.Tool `json:"tools,omitempty"`
	// MaxTurns bounds the model's turns; 0 leaves the harness's default.
	MaxTurns int `json:"max_turns,omitempty"`
	// Window is how many tokens the model reads at once; 0: not known.
	Window int                     `json:"window,omitempty"`
	Spent  contract.Usage          `json:"spent"`
	Turns  []contract.TurnRecorded `json:"turns,omitempty"`
	// Kept is what people told the computer to keep. It stands in each request behind what the loop says of itself.
	Kept string `json:"kept,omitempty"`
	// Brief is what the host says of the tree and the machine, as sections of Markdown.
	Brief     string `json:"brief,omitempty"`
	Heartbeat int    `json:"beat_ms,omitempty"` // 2000 when 0
}

// Report is how the loop ends a run. The host decides on the final Status.
type Report struct {
	Status  contract.RunStatus `json:"status"` // done, failed or cancelled
	Summary string             `json:"summary"`
	Reason  harness.Reason     `json:"reason,omitempty"`
	Detail  string             `json:"detail,omitempty"`
	Usage   contract.Usage     `json:"usage"`
	Turns   int                `json:"turns"`
}

// WakeReply is the host's answer to POST /wake: the state of the run. The host answers once the
// run is not paused. It is complete each time; what was told already the loop does not tell again.
type WakeReply struct {
	Objective string              `json:"objective,omitempty"`
	Plan      []contract.PlanItem `json:"plan,omitempty"`
	Tasks     []TaskView          `json:"tasks,omitempty"` // oldest first
	Answers   []Answer            `json:"answers,omitempty"`
	Steering  []string            `json:"steering,omitempty"`
	Looked    []string            `json:"looked,omitempty"`   // its own calls that only read, with their ids, newest first
	Kept      []string            `json:"kept,omitempty"`     // what people had the computer keep, or forget, since the run began
	Document  string              `json:"document,omitempty"` // set when the user edited the run's document
	Tree      []string            `json:"tree,omitempty"`     // the workspace's upper folders
	Notes     []string            `json:"notes,omitempty"`    // what the computer can't do here
}

// TaskView is a task and, when it has one, its newest result, as the Director
// sees it: references and summaries, never raw logs.
type TaskView struct {
	ID           string                      `json:"id"`
	Kind         contract.TaskKind           `json:"kind"`
	Goal         string                      `json:"goal"`
	Status       string                      `json:"status"` // working, or a result's status
	Summary      string                      `json:"summary,omitempty"`
	Verification contract.VerificationStatus `json:"verification,omitempty"`
	Reason       string                      `json:"reason,omitempty"` // why the verification is unknown or failed
	Changes      []string                    `json:"changes,omitempty"`
	Cited        []string                    `json:"cited,omitempty"` // claims that it recorded with their sources
	Ran          []string                    `json:"ran,omitempty"`   // of fixed steps: each command, and what it wrote
	Head         string                      `json:"head,omitempty"`
	Kept         *contract.KeptTree          `json:"kept,omitempty"` // what it wrote, if it was not published
	Overlaps     []contract.Overlap          `json:"overlaps,omitempty"`
	Questions    []string                    `json:"questions,omitempty"`
	Requests     []contract.Request          `json:"requests,omitempty"`
	Outside      []string                    `json:"outside,omitempty"` // what it changed outside of the computer, or may have
	Next         string                      `json:"suggested_next,omitempty"`
	Again        bool                        `json:"again,omitempty"` // it was delegated before, in the same words, and not a second time
}

// Answer is a question of this run with its answer.
type Answer struct {
	Question string `json:"question"`
	Answer   string `json:"answer"`
	Default  bool   `json:"default,omitempty"`
}

// Delegate is the body of POST /tasks: tasks as the model wrote them, without what only the
// host may set (version, id, run, attempt). The host refuses all or accepts all, and
// answers with their results when all have ended.
type Delegate struct {
	Call  string            `json:"call"`
	Tasks []json.RawMessage `json:"tasks"`
}

// Delegated answers Delegate.
type Delegated struct {
	Tasks []TaskView `json:"tasks"`
}

// Ask is the body of POST /ask; the host answers when the user has, or when the deadline
// has passed.
type Ask struct {
	Call      string   `json:"call"`
	Text      string   `json:"text"`
	Choices   []string `json:"choices,omitempty"`
	Default   string   `json:"default,omitempty"`
	DeadlineS int      `json:"deadline_s,omitempty"`
}

// Remember is the body of POST /remember: words of the user that hold beyond the run. The host looks for them in what
// the user said.
type Remember struct {
	Call  string `json:"call"`
	Words string `json:"words"`
}

// Remembered answers Remember.
type Remembered struct {
	Text string `json:"text"` // for the model
}

// Reporting is the body of POST /report: the call with which the Director means to end the run.
type Reporting struct {
	Call string `json:"call"`
}

// Reported answers Reporting. Unheard says, for the model, what the user said that it was not told: then the report is
// not taken, and the run goes on. If it is empty, the run takes no more words.
type Reported struct {
	Unheard string `json:"unheard,omitempty"`
}

// Post is the body of POST /events: one event of a type that a Director's box
// may post, without envelope.
type Post struct {
	Type string          `json:"type"`
	Data json.RawMessage `json:"data"`
}
