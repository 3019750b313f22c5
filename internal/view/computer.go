package view

import (
	"time"

	"choir.dev/choiros/contract"
)

// ComputerState is the state of a computer that the console's frame shows.
type ComputerState string

// The states of a computer.
const (
	StateAwake   ComputerState = "awake"   // ready
	StateWorking ComputerState = "working" // a run is under way
	StateAsleep  ComputerState = "asleep"  // no box runs
	StateBroken  ComputerState = "broken"  // its desktop is blank or throwing
	StateWaking  ComputerState = "waking"  // waking up
	StateDamaged ComputerState = "damaged" // stored data are damaged, so it was not opened
	StateFailed  ComputerState = "failed"  // it does not wake
)

// Computer is one computer.
type Computer struct {
	ID        contract.CID  `json:"id"`
	Name      string        `json:"name"`
	Handle    string        `json:"handle,omitempty"`  // filled by the control plane
	Desktop   string        `json:"desktop,omitempty"` // its origin; filled by the control plane
	State     ComputerState `json:"state"`
	Created   time.Time     `json:"created,omitzero"` // not known of one that does not wake
	Driver    string        `json:"driver"`
	Isolation string        `json:"isolation"`
	Notes     []string      `json:"notes,omitempty"` // what isolation this host could not provide
	Sequence  uint64        `json:"sequence"`        // last event of its log
	Trouble   *Trouble      `json:"trouble,omitempty"`
	Removed   time.Time     `json:"removed,omitzero"` // when it was removed
	Gone      time.Time     `json:"gone,omitzero"`    // until when it can be put back, once removed
}

// Trouble is why a computer does not wake, what of it is safe and what can be
// done about it.
type Trouble struct {
	Code    string   `json:"code"`
	Reason  string   `json:"reason"`
	Hint    string   `json:"hint,omitempty"`
	Safe    string   `json:"safe"`
	Damage  []string `json:"damage,omitempty"` // which file, and what is wrong with it
	Actions []Repair `json:"actions"`
	// Next is the time of the next automatic try to wake it, and Tries its number.
	Next  *time.Time `json:"next,omitempty"`
	Tries int        `json:"tries,omitempty"`
}

// Repair is something that can be done about a computer that does not wake.
type Repair string

// The repairs.
const (
	RepairRetry        Repair = "retry"         // try again
	RepairRecover      Repair = "recover"       // bring back what another copy knows
	RepairWithoutTasks Repair = "without_tasks" // open it without what interrupted tasks left
	RepairRewind       Repair = "rewind"        // bring its files back to an earlier checkpoint
	RepairExport       Repair = "export"        // take its files and events away
)

// WakeRequest is another try to wake a computer.
type WakeRequest struct {
	// WithoutTasks ends the tasks that were interrupted as failed and moves what
	// they left aside, instead of taking them up.
	WithoutTasks bool `json:"without_tasks,omitempty"`
}

// Action is a person's intention: a contract event type with Action set. ID is
// a UUIDv7 drawn by the sender and becomes the event's id, so that an action
// that is sent again is recognised. Run is given for run.steered,
// run.commanded and question.answered.
type Action struct {
	ID      string         `json:"id,omitempty"`
	Type    string         `json:"type"`
	Subject string         `json:"subject,omitempty"`
	Run     string         `json:"run,omitempty"`
	By      contract.Actor `json:"-"` // who asks; never from the wire
	// Traceparent is the caller's W3C trace context, if it is one; of a prompt.
	Traceparent string           `json:"-"`
	Data        contract.Payload `json:"data"` // a pointer, as contract.DecodeData gives it
}

// Acted is the answer to an action: the sequence of its event, on disk, and for
// a prompt the run that it causes.
type Acted struct {
	Run      string `json:"run,omitempty"`
	Sequence uint64 `json:"sequence"`
}

// Prompt is an intention in words.
type Prompt struct {
	ID     string          `json:"id,omitempty" doc:"UUIDv7 drawn by the sender; the same id again is the same prompt"`
	Text   string          `json:"text" minLength:"1" maxLength:"32768"`
	Model  string          `json:"model,omitempty" maxLength:"200" doc:"provider/model or an alias; empty: the default"`
	Budget contract.Budget `json:"budget,omitzero"`
	// Continues is an ended run of the computer that the new one goes on from.
	Continues string `json:"continues,omitempty" maxLength:"36" doc:"an ended run that this one is told of and goes on from; nothing that was granted to it is carried over"`
	// Route is whether it is planned first.
	Route contract.Route `json:"route,omitempty" enum:"plan,direct" doc:"plan: a Director plans it; direct: it goes to one Associate at once; empty: a small prompt goes to one Associate"`
	// Effort is how much the run's models think.
	Effort contract.Effort `json:"effort,omitempty" enum:"none,low,medium,high" doc:"how much the run's models think before they answer, where they can be told; empty: what the owner says, else the model's own"`
	// Review has a person look first.
	Review bool `json:"review,omitempty" doc:"look at what its tasks made before it is published; the owner may want it of every run"`
	// Summarise is what a document with citations is wanted of.
	Summarise string `json:"summarise,omitempty" maxLength:"4096" doc:"an address of the web or a path in the workspace, of which a document with citations is wanted; text says so in words"`
}

// Run is all that follows from one prompt.
type Run struct {
	ID         string                      `json:"id"`
	Prompt     string                      `json:"prompt"`
	Status     contract.RunStatus          `json:"status"`
	Reason     string                      `json:"reason,omitempty"`
	Objective  string                      `json:"objective,omitempty"`
	Plan       []contract.PlanItem         `json:"plan,omitempty"`
	Summary    string                      `json:"summary,omitempty"`
	Error      string                      `json:"error,omitempty"`
	Verified   contract.VerificationStatus `json:"verified,omitempty"`
	Document   string                      `json:"document,omitempty"`
	Checkpoint string                      `json:"checkpoint,omitempty"`
	Provider   string                      `json:"provider,omitempty"`
	Model      string                      `json:"model,omitempty"`
	Usage      contract.Usage              `json:"usage"`
	Started    time.Time                   `json:"started"`
	Ended      time.Time                   `json:"ended,omitzero"`
	Paused     *Paused                     `json:"paused,omitempty"`    // while it is paused; its status is the one that it goes on with
	StoodMS    int64                       `json:"stood_ms,omitempty"`  // for how long it stood still because the machine or choir did
	Waits      []ModelWait                 `json:"waits,omitempty"`     // loops that wait for their model; another can be chosen
	Fallback   string                      `json:"fallback,omitempty"`  // provider/model that answers in the place of model
	Continues  string                      `json:"continues,omitempty"` // the run that it goes on from
	Direct     string                      `json:"direct,omitempty"`    // why it went to one Associate at once, without a plan
	Sequence   uint64                      `json:"sequence"`            // of its prompt; pages of runs go by it
	Questions  []contract.Question         `json:"questions,omitempty"` // open ones
	Approvals  []Approval                  `json:"approvals,omitempty"` // open ones
	Reviews    []Review                    `json:"reviews,omitempty"`   // what waits until a person has looked at it
	Tasks      []Task                      `json:"tasks,omitempty"`     // only where a single run is requested
}

// Paused says who had a run pause, and when.
type Paused struct {
	By    contract.ActorName `json:"by,omitempty"`
	Since time.Time          `json:"since,omitzero"`
}

// ModelWait is a loop that waits for its model, which can't be had now.
type ModelWait struct {
	Task     string `json:"task,omitempty"` // empty: the Director
	Provider string `json:"provider"`
	Model    string `json:"model"`
	Code     string `json:"code"`
	Message  string `json:"message,omitempty"` // why, in words
	Since    string `json:"since,omitempty"`   // RFC 3339, as are the next two
	Next     string `json:"next,omitempty"`    // when it is tried again
	Until    string `json:"until,omitempty"`   // when waiting is given up
}

// Task is one task of a run.
type Task struct {
	ID           string                      `json:"id"`
	Kind         contract.TaskKind           `json:"kind"`
	Goal         string                      `json:"goal"`
	Status       string                      `json:"status"` // requested, running, or the last result's status
	Attempt      int                         `json:"attempt"`
	Verification contract.VerificationStatus `json:"verification,omitempty"`
	Summary      string                      `json:"summary,omitempty"`
	Result       *contract.AssociateResult   `json:"result,omitempty"` // only where a single run is requested
}

// Answer answers a run's question.
type Answer struct {
	Question string `json:"question" minLength:"1" maxLength:"128"`
	Answer   string `json:"answer" maxLength:"8192"`
}

// Document is one revision of a living document.
type Document struct {
	ID       string    `json:"id"`
	Title    string    `json:"title"`
	Path     string    `json:"path"`
	Revision int       `json:"revision"`
	Author   string    `json:"author"`
	Time     time.Time `json:"time"`
	Body     string    `json:"body"` // Markdown; empty in lists
}

// Window is a window of the desktop at the end of the log.
type Window struct {
	Window string               `json:"window"`
	App    string               `json:"app"`
	Title  string               `json:"title"`
	Frame  contract.Frame       `json:"frame"`
	State  contract.WindowState `json:"state"`
	Z      int                  `json:"z"`
	Props  map[string]string    `json:"props"`
}

// RunHead is what a list shows of a run.
type RunHead struct {
	Run        string                      `json:"run"`
	Prompt     string                      `json:"prompt"`
	Status     contract.RunStatus          `json:"status"`
	Started    time.Time                   `json:"started"`
	Ended      time.Time                   `json:"ended,omitzero"`
	Summary    string                      `json:"summary"`
	Verified   contract.VerificationStatus `json:"verified,omitempty"`
	Checkpoint string                      `json:"checkpoint"`
	Document   string                      `json:"document"`
	Usage      contract.Usage              `json:"usage"`
}

// Head is what a list shows of the run.
func (r Run) Head() RunHead {
	return RunHead{r.ID, r.Prompt, r.Status, r.Started, r.Ended, r.Summary, r.Verified, r.Checkpoint, r.Document, r.Usage}
}

// DocumentHead is what a list shows of a document.
type DocumentHead struct {
	Document string    `json:"document"`
	Title    string    `json:"title"`
	Path     string    `json:"path"`
	Revision int       `json:"revision"`
	Time     time.Time `json:"time"`
}

// Head is what a list shows of the document.
func (d Document) Head() DocumentHead {
	return DocumentHead{d.ID, d.Title, d.Path, d.Revision, d.Time}
}

// ComputerHead is what its own desktop shows of a computer.
type ComputerHead struct {
	CID       contract.CID `json:"cid"`
	Name      string       `json:"name"`
	Created   time.Time    `json:"created"`
	Driver    string       `json:"driver"`
	Isolation string       `json:"isolation"`
	Notes     []string     `json:"notes"`
}

// Head is what its own desktop shows of the computer.
func (c Computer) Head() ComputerHead {
	return ComputerHead{c.ID, c.Name, c.Created, c.Driver, c.Isolation, c.Notes}
}

// Snapshot is what the desktop's first paint needs. Sequence is the last event
// it reflects, no more, no less. Runs, Checkpoints and Documents are the newest
// 50, newest first.
type Snapshot struct {
	Sequence    uint64               `json:"sequence"`
	Computer    ComputerHead         `json:"computer"`
	Theme       *contract.Theme      `json:"theme"` // null until a valid one exists
	Windows     []Window             `json:"windows"`
	Runs        []RunHead            `json:"runs"`
	Checkpoints []ByName[Checkpoint] `json:"checkpoints"`
	Documents   []DocumentHead       `json:"documents"`
}

// OutputChunk is a piece of a command's output; N is dense per command.
type OutputChunk struct {
	Number int64        `json:"n"`
	Stream OutputStream `json:"stream"`
	Text   string       `json:"text"`
}

// OutputStream is where a command wrote something.
type OutputStream string

// The streams.
const (
	Stdout OutputStream = "stdout"
	Stderr OutputStream = "stderr"
)

// Output is what is kept of a command's output. ExitCode is given once it has
// ended and nothing more is to come; with it Unkept, what the command left behind
// that no checkpoint holds.
type Output struct {
	Chunks    []OutputChunk `json:"chunks"`
	Running   bool          `json:"running"`
	ExitCode  *int          `json:"exit_code,omitempty"`
	Unkept    *Unkept       `json:"unkept,omitempty"`
	Truncated bool          `json:"truncated"` // some was dropped that the asker has not had
}

// Provider is what the next prompt would use. A frame has no choices: what shows them asks for its session.
type Provider struct {
	Name      string  `json:"name"`
	Model     string  `json:"model"`
	Rehearsal bool    `json:"rehearsal"`
	Network   string  `json:"network,omitempty"`
	BudgetUSD float64 `json:"budgetUSD,omitempty"`
	Choices   Choices `json:"choices"`
}

// Choices are what the next prompt can choose, and what counts where it chooses nothing.
type Choices struct {
	Routes      []contract.Route  `json:"routes,omitempty"`      // none while plans are played: they always have a Director
	DirectWords int               `json:"directWords,omitempty"` // a prompt of one line and at most so many words goes to one Associate by itself
	Efforts     []contract.Effort `json:"efforts,omitempty"`     // of the models, least first; none: they can't be told
	Director    contract.Effort   `json:"director,omitempty"`    // how much the roles think by the owner; empty: as their models do
	Associate   contract.Effort   `json:"associate,omitempty"`   //
	Models      []string          `json:"models,omitempty"`      // aliases and names that the prompt's models can have, at most 60
	Review      bool              `json:"review,omitempty"`      // the owner wants everything looked at first, which no prompt gets around
}

// Session is what a desktop's page connects with.
type Session struct {
	CID          contract.CID `json:"cid"`
	Name         string       `json:"name"`
	User         string       `json:"user"`
	NATS         SessionBus   `json:"nats"`
	LastSequence uint64       `json:"lastSequence"`
	ReadOnly     bool         `json:"readOnly"`
	Provider     Provider     `json:"provider"`
}

// SessionBus is where and as whom a desktop's page speaks on the bus.
type SessionBus struct {
	URL     string    `json:"url"`
	JWT     string    `json:"jwt"`
	Seed    string    `json:"seed"`
	Inbox   string    `json:"inbox"`
	Streams string    `json:"streams"` // what is this session's alone
	Expires time.Time `json:"expires"`
}

// Frame is what the console shows around a desktop.
type Frame struct {
	Computer   Computer         `json:"computer"`
	Running    []Run            `json:"running"`           // runs that have not ended, without tasks
	Commands   []RunningCommand `json:"commands"`          // the user's own commands that have not ended, whoever looks
	SpentUSD   float64          `json:"spent_usd"`         // today, UTC
	Provider   Provider         `json:"provider"`          //
	Desktop    DesktopStatus    `json:"desktop"`           //
	Waiting    []Waiting        `json:"waiting"`           // what stays until a person has dealt with it
	Unisolated bool             `json:"unisolated"`        // boxes run without isolation: say so on every screen
	Limited    string           `json:"limited,omitempty"` // what of this computer's clients was refused of late, and why
}

// RunningCommand is one of the user's own commands that runs.
type RunningCommand struct {
	ID      string    `json:"id"`
	Line    string    `json:"line"` // what was typed, or its arguments; cut
	Started time.Time `json:"started"`
}

// DesktopMode says what the desktop's origin serves.
type DesktopMode string

// What the desktop's origin serves.
const (
	ModeBuild    DesktopMode = "build"    // the kept build
	ModeStarting DesktopMode = "starting" // the kept build, while the live page starts
	ModeLive     DesktopMode = "live"     // the dev server answers as well
)

// DesktopStatus says how a desktop is.
type DesktopStatus struct {
	Mode     DesktopMode `json:"mode"`
	Since    time.Time   `json:"since,omitzero"`      // when the dev server that answers now was started; pages of an earlier one get no more hot updates
	Build    string      `json:"build,omitempty"`     // commit of the kept build; empty: the base that came with the binary
	LastGood string      `json:"last_good,omitempty"` // newest verified checkpoint, which Rewind restores; with another shell than this one if this is broken
	Reason   string      `json:"reason,omitempty"`    // why it is broken, or why there is no live page
	Broken   bool        `json:"broken"`
	Run      string      `json:"run,omitempty"`  // the run whose edit broke it, if one did and nobody has changed the shell since
	Auto     bool        `json:"auto,omitempty"` // whether rewinding to last_good takes back only edits of that run that passed no check, so that nobody need be asked
}

// Heartbeat is what the injected script observed of one loaded page.
type Heartbeat struct {
	Page   string      `json:"-"`                // an id that was drawn when the page was served
	Mode   DesktopMode `json:"mode"`             // build or live
	Stale  bool        `json:"stale,omitempty"`  // the page could not load newer source, so its state says nothing about that source
	Broken bool        `json:"broken"`           // blank or throwing; otherwise it has painted
	Reason string      `json:"reason,omitempty"` // blank or error
	Detail string      `json:"detail,omitempty"` // such as the error's text; written by untrusted code
}
