package contract

import (
	"encoding/json"
	"strings"
)

// What happens in a computer, from prompt to report. One struct per event
// type; the table at the end says who may say it.

// RunStatus is where a run stands.
type RunStatus string

// Where a run stands.
const (
	RunQueued    RunStatus = "queued"
	RunPlanning  RunStatus = "planning"
	RunWorking   RunStatus = "working"
	RunWaiting   RunStatus = "waiting"
	RunDone      RunStatus = "done"
	RunFailed    RunStatus = "failed"
	RunCancelled RunStatus = "cancelled"
)

// Ended reports whether a run in this status is over.
func (s RunStatus) Ended() bool { return s == RunDone || s == RunFailed || s == RunCancelled }

type (
	// ComputerCreated starts a log. Of one that was forked, From and Checkpoint are
	// the computer and the checkpoint of it whose files it began with.
	ComputerCreated struct {
		Name       string `json:"name" v:"required,max=100"`
		Driver     string `json:"driver" v:"required,max=40"`
		From       string `json:"from,omitempty" v:"max=16"`
		Checkpoint string `json:"checkpoint,omitempty" v:"max=40"`
	}
	// ComputerRenamed gives the computer another name.
	ComputerRenamed struct {
		Name string `json:"name" v:"required,max=100"`
	}
	// ComputerWoken says that a control plane owns the log from here on, as
	// event.epoch tells. Driver and Isolation say what its boxes are made of.
	ComputerWoken struct {
		Version   string   `json:"version" v:"required,max=100"`
		Driver    string   `json:"driver" v:"required,max=40"`
		Isolation string   `json:"isolation" v:"required,max=200"`
		Notes     []string `json:"notes,omitempty" v:"items=200;required,max=1000"` // what isolation this host could not provide
	}
	// PromptSubmitted is a person's intention. Its event id is the run's cause. Continues
	// names a run of the same computer that had ended, of which the new run's Director is
	// told what it did; nothing that was granted to that run is granted to this one. Route
	// is the person's wish whether it is planned first.
	PromptSubmitted struct {
		Text      string `json:"text" v:"required,max=32768"`
		Model     string `json:"model,omitempty" v:"max=200"`
		Budget    Budget `json:"budget,omitzero"`
		Continues string `json:"continues,omitempty" v:"id"`
		Route     Route  `json:"route,omitempty"`
		// Effort is how much the run's models think before they answer; empty: what the owner says.
		Effort Effort `json:"effort,omitempty"`
		// Summarise is an address of the web or a path in the workspace, of which a document with citations is wanted.
		Summarise string `json:"summarise,omitempty" v:"line,max=4096"`
		// Review says that a person looks at what its tasks made before it is published.
		Review bool `json:"review,omitempty"`
	}
	// RunStarted opens a run and its living document. Direct is why the prompt goes to one
	// Associate at once, without a Director's plan; it is empty if a Director plans it. It is
	// decided once. Facts are what the computer kept then, oldest first, which all loops of the
	// run are told word for word in each request.
	RunStarted struct {
		Document string `json:"document" v:"required,id"`
		Provider string `json:"provider" v:"required,max=100"`
		Model    string `json:"model" v:"required,max=200"`
		Direct   string `json:"direct,omitempty" v:"max=400"`
		Facts    []Fact `json:"facts,omitempty" v:"items=40"`
		// Review says that a person looks at what its tasks made before it is published: the prompt, or
		// the owner for this computer, wants it so.
		Review bool `json:"review,omitempty"`
	}
	// RunPlanned is the Director's plan, whole, each time it changes.
	RunPlanned struct {
		Objective string     `json:"objective" v:"required,max=32768"`
		Plan      []PlanItem `json:"plan,omitempty" v:"items=100"`
	}
	// PlanItem is one line of a plan.
	PlanItem struct {
		Text   string     `json:"text" v:"required,max=4096"`
		Status PlanStatus `json:"status" v:"required"`
		Task   string     `json:"task,omitempty" v:"id"`
	}
	// RunMoved says that a run's status changed.
	RunMoved struct {
		Status RunStatus `json:"status" v:"required"`
		Reason string    `json:"reason,omitempty" v:"max=4096"`
	}
	// RunStood says that a run stood still for a while and goes on: the machine, choir or
	// one of its boxes did not run meanwhile. That time does not count against the run's
	// budget, unless it was a box.
	RunStood struct {
		ForMS int64    `json:"for_ms" v:"min=0"`
		Why   StoodWhy `json:"why" v:"required"`
	}
	// RunSteered is what the user said to a run while it goes on.
	RunSteered struct {
		Text string `json:"text" v:"required,max=32768"`
	}
	// RunCommanded is the user's pause, resume or cancel.
	RunCommanded struct {
		Command RunCommand `json:"command" v:"required"`
	}
	// ModelWaiting says that a loop waits for its model, which can't be had now, and why. It is said
	// once, and again when the reason or the model changes; ModelResumed ends it.
	ModelWaiting struct {
		Role     string `json:"role" v:"required,max=100"`
		Provider string `json:"provider" v:"required,max=100"`
		Model    string `json:"model" v:"required,max=200"`
		Code     string `json:"code" v:"required,max=100"` // TurnError's
		Message  string `json:"message" v:"max=4096"`
		Since    string `json:"since" v:"time"` // of the first failed try
		Next     string `json:"next" v:"time"`  // when it is tried again; that may also be sooner
		Until    string `json:"until" v:"time"` // when waiting is given up
		Try      int    `json:"try" v:"min=0"`  // how many tries have failed
	}
	// ModelResumed says that a loop does not wait for its model any more.
	ModelResumed struct {
		Role     string    `json:"role" v:"required,max=100"`
		Provider string    `json:"provider" v:"required,max=100"` // of the model that answers, or that was waited for
		Model    string    `json:"model" v:"required,max=200"`
		Instead  string    `json:"instead,omitempty" v:"max=300"` // the model (provider/model) in whose place another answers
		Outcome  WaitEnded `json:"outcome" v:"required"`
		WaitedMS int64     `json:"waited_ms" v:"min=0"`
	}
	// ModelSwitched is the user's choice of another model for a run that goes on.
	ModelSwitched struct {
		Model string `json:"model" v:"required,max=200"` // provider/model or an alias; the host stores provider/model
	}
	// QuestionAsked is the Director's question; the run waits.
	QuestionAsked struct {
		Question Question `json:"question"`
	}
	// QuestionAnswered is the user's answer, or the default after the deadline.
	QuestionAnswered struct {
		Question string `json:"question" v:"required,max=128"`
		Answer   string `json:"answer" v:"max=8192"`
		Default  bool   `json:"default,omitempty"`
	}
	// RunReported ends a run.
	RunReported struct {
		Status     RunStatus          `json:"status" v:"required"`
		Summary    string             `json:"summary" v:"required,max=32768"`
		Document   string             `json:"document,omitempty" v:"id"`
		Checkpoint string             `json:"checkpoint,omitempty" v:"commit"`
		Verified   VerificationStatus `json:"verified" v:"required"`
		Usage      Usage              `json:"usage"`
		Error      string             `json:"error,omitempty" v:"max=8192"`
	}
	// TaskRequested carries the whole task.
	TaskRequested struct {
		Task DirectorTask `json:"task"`
	}
	// TaskStarted says that a box works on an attempt.
	TaskStarted struct {
		Attempt int    `json:"attempt" v:"min=1,max=1000"`
		Box     string `json:"box" v:"required,max=128"`
		Base    string `json:"base" v:"commit"`
		Fence   string `json:"fence" v:"required,max=128"` // hash of the fencing token
	}
	// TaskFinished carries the one result of an attempt.
	TaskFinished struct {
		Result AssociateResult `json:"result"`
	}
	// TurnRecorded is one model turn of an agent task, or of the Director when the
	// event names no task. It is recorded again, with Returns, when its calls have
	// returned; the newer one of an Index counts. It is kept so that the loop
	// can resume. Data beyond the inline limit travel as a blob.
	TurnRecorded struct {
		Attempt int       `json:"attempt" v:"min=0,max=1000"`
		Index   int       `json:"index" v:"min=0,max=1000000"`
		Message Message   `json:"message"`
		Returns []Message `json:"returns,omitempty" v:"items=100"`
		Usage   Usage     `json:"usage"`
		// Stop says why the answer ended. Versions before this field left it out.
		Stop StopReason `json:"stop,omitempty"`
		// Told is what the request that this turn answers said last, behind what was said before; of turn 0, its first
		// message. With it, a loop that resumes asks as the one before did.
		Told string `json:"told,omitempty" v:"raw,max=8388608"`
		// Compacted says that this turn is a summary of earlier ones.
		Compacted *Compaction `json:"compacted,omitempty"`
	}
	// Compaction puts a text in the place of the turns before one. The text has the model's own summary and what the
	// log knows.
	Compaction struct {
		Keeps int    `json:"keeps" v:"min=0,max=1000000"` // the index of the first turn that stays
		Text  string `json:"text" v:"raw,max=8388608"`
	}
	// ToolCalled is appended before a tool runs.
	ToolCalled struct {
		Call     string          `json:"call" v:"required,max=256"`
		Name     string          `json:"name" v:"required,max=128"`
		Args     json.RawMessage `json:"args" v:"max=1048576"`
		ReadOnly bool            `json:"read_only"`
		Attempt  int             `json:"attempt" v:"min=0,max=1000"`
	}
	// ToolReturned is appended after a tool ran; the outcome of a call without it is
	// unknown. Command is the command that it ran, shortened, if it ran one: a result lists
	// it as evidence.
	ToolReturned struct {
		Call       string   `json:"call" v:"required,max=256"`
		Name       string   `json:"name" v:"required,max=128"`
		OK         bool     `json:"ok"`
		Output     string   `json:"output" v:"raw,max=1048576"`
		OutputRef  BlobRef  `json:"output_ref,omitempty"`
		DurationMS int64    `json:"duration_ms" v:"min=0"`
		Attempt    int      `json:"attempt" v:"min=0,max=1000"`
		Command    *Command `json:"command,omitempty"`
		Images     []Image  `json:"images,omitempty" v:"items=20"` // what it showed beside its output
	}
	// VerificationFinished is the outcome of checking a tree.
	VerificationFinished struct {
		Attempt      int          `json:"attempt" v:"min=0,max=1000"`
		Verification Verification `json:"verification"`
	}
	// CommandStarted is the user's own command in a terminal box.
	CommandStarted struct {
		Command string   `json:"command" v:"required,max=128"` // id
		Argv    []string `json:"argv" v:"nonempty,items=256;max=65536"`
		Cwd     string   `json:"cwd,omitempty" v:"max=4096"`
	}
	// CommandFinished ends CommandStarted. ExitCode is 128+n after signal n.
	CommandFinished struct {
		Command    string `json:"command" v:"required,max=128"`
		ExitCode   int    `json:"exit_code" v:"min=-1,max=255"`
		DurationMS int64  `json:"duration_ms" v:"min=0"`
		Reason     string `json:"reason,omitempty" v:"max=1024"`
		// Checkpoint is the newest checkpoint when it had ended, which contains what it did.
		// Versions before this field made that checkpoint behind this event.
		Checkpoint string `json:"checkpoint,omitempty" v:"max=64"`
		// NoCheckpoint says why none could be made before it or after it, if so.
		NoCheckpoint string `json:"no_checkpoint,omitempty" v:"max=1024"`
	}
)

// PlanStatus is where a plan item stands.
type PlanStatus string

// Where a plan item stands.
const (
	PlanOpen    PlanStatus = "open"
	PlanActive  PlanStatus = "active"
	PlanDone    PlanStatus = "done"
	PlanFailed  PlanStatus = "failed"
	PlanDropped PlanStatus = "dropped"
)

// WaitEnded says how a wait for a model ended.
type WaitEnded string

// How a wait for a model ended.
const (
	WaitAnswered WaitEnded = "answered" // the model named, which may be one in the place of another
	WaitGaveUp   WaitEnded = "gave_up"  // the patience was over, or the error was another that does not pass
	WaitLeft     WaitEnded = "left"     // who asked was ended
	WaitSwitched WaitEnded = "switched" // the user chose another model
)

// StoodWhy says what stood still.
type StoodWhy string

// What stood still.
const (
	StoodSuspended StoodWhy = "suspended" // the whole machine
	StoodStopped   StoodWhy = "stopped"   // choir
	StoodBox       StoodWhy = "box"       // a box of the run, which was replaced
)

// Route is the way of a prompt: to a Director, who plans it, or to one Associate at once.
type Route string

// The ways of a prompt. If none is named, a small prompt goes to one Associate at once.
const (
	RoutePlan   Route = "plan"
	RouteDirect Route = "direct"
)

// RunCommand is what a user tells a run to do.
type RunCommand string

// What a user can tell a run.
const (
	CommandPause  RunCommand = "pause"
	CommandResume RunCommand = "resume"
	CommandCancel RunCommand = "cancel"
)

// Validate implements Payload.
func (p ComputerCreated) Validate() error { return check(p) }

// Validate implements Payload.
func (p ComputerRenamed) Validate() error { return check(p) }

// Validate implements Payload.
func (p ComputerWoken) Validate() error { return check(p) }

// Validate implements Payload.
func (p PromptSubmitted) Validate() error { return check(p) }

// Validate implements Payload.
func (p RunStarted) Validate() error { return check(p) }

// Validate implements Payload.
func (p RunPlanned) Validate() error { return check(p) }

// Validate implements Payload.
func (p RunMoved) Validate() error { return check(p) }

// Validate implements Payload.
func (p RunStood) Validate() error { return check(p) }

// Validate implements Payload.
func (p RunSteered) Validate() error { return check(p) }

// Validate implements Payload.
func (p RunCommanded) Validate() error { return check(p) }

// Validate implements Payload.
func (p ModelWaiting) Validate() error { return check(p) }

// Validate implements Payload.
func (p ModelResumed) Validate() error { return check(p) }

// Validate implements Payload.
func (p ModelSwitched) Validate() error { return check(p) }

// Validate implements Payload.
func (p QuestionAsked) Validate() error { return check(p) }

// Validate checks a question's form.
func (q Question) Validate() error { return check(q) }

// Validate implements Payload.
func (p QuestionAnswered) Validate() error { return check(p) }

// Validate implements Payload.
func (p RunReported) Validate() error { return check(p) }

// Validate implements Payload.
func (p TaskRequested) Validate() error { return check(p) }

// Validate implements Payload.
func (p TaskStarted) Validate() error { return check(p) }

// Validate implements Payload.
func (p TaskFinished) Validate() error { return check(p) }

// Validate implements Payload.
func (p TurnRecorded) Validate() error { return check(p) }

// Validate implements Payload.
func (p ToolCalled) Validate() error { return check(p) }

// Validate implements Payload.
func (p ToolReturned) Validate() error { return check(p) }

// Validate implements Payload.
func (p VerificationFinished) Validate() error { return check(p) }

// Validate implements Payload.
func (p CommandStarted) Validate() error { return check(p) }

// Validate implements Payload.
func (p CommandFinished) Validate() error { return check(p) }

func init() {
	register[ComputerCreated](TypeInfo{Type: "computer.created", Doc: "A computer was made; the first event of a log.", By: host, Needs: CanRecord, Projected: true})
	register[ComputerRenamed](TypeInfo{Type: "computer.renamed", Doc: "The computer got another name.", By: clients, Needs: CanArrange, Action: true, Projected: true})
	register[ComputerWoken](TypeInfo{Type: "computer.woken", Doc: "A control plane took the log over under a new epoch.", By: host, Needs: CanRecord, Projected: true})
	register[DamageFound](TypeInfo{Type: "damage.found", Doc: "Something stored is not what was stored; healed from another copy, or named.", By: host, Needs: CanRecord})
	register[LogRecovered](TypeInfo{Type: "log.recovered", Doc: "The log was refilled, or what was missing given up; what is before it and what could not be had.", By: host, Needs: CanRecord})
	register[PromptSubmitted](TypeInfo{Type: "prompt.submitted", Doc: "A person's intention; it causes a run.", By: clients, Needs: CanPrompt, Action: true, Projected: true})
	register[RunStarted](TypeInfo{Type: "run.started", Doc: "A run began.", By: host, Needs: CanRecord, Projected: true})
	register[RunPlanned](TypeInfo{Type: "run.planned", Doc: "The Director's plan, whole.", By: []ActorKind{KindDirector}, Needs: CanPlan, Boxes: []BoxKind{BoxDirector}, Projected: true})
	register[RunMoved](TypeInfo{Type: "run.moved", Doc: "A run's status changed.", By: host, Needs: CanRecord, Projected: true})
	register[RunStood](TypeInfo{Type: "run.stood", Doc: "A run stood still with the machine, choir or a box, and went on.", By: host, Needs: CanRecord, Projected: true})
	register[RunSteered](TypeInfo{Type: "run.steered", Doc: "The user spoke to a run.", By: clients, Needs: CanPrompt, Action: true, Projected: true})
	register[RunCommanded](TypeInfo{Type: "run.commanded", Doc: "The user paused, resumed or cancelled a run.", By: clientsOrHost, Needs: CanPrompt, Action: true, Projected: true})
	register[ModelWaiting](TypeInfo{Type: "model.waiting", Doc: "A loop waits for its model, which can't be had now.", By: host, Needs: CanRecord, Projected: true})
	register[ModelResumed](TypeInfo{Type: "model.resumed", Doc: "A loop does not wait for its model any more, or another model answers in its place.", By: host, Needs: CanRecord, Projected: true})
	register[ModelSwitched](TypeInfo{Type: "model.switched", Doc: "The user chose another model for a run.", By: clients, Needs: CanPrompt, Action: true, Projected: true})
	register[QuestionAsked](TypeInfo{Type: "question.asked", Doc: "The Director asked the user.", By: []ActorKind{KindDirector}, Needs: CanPlan, Boxes: []BoxKind{BoxDirector}, Projected: true})
	register[QuestionAnswered](TypeInfo{Type: "question.answered", Doc: "The user answered, or the deadline passed.", By: clientsOrHost, Needs: CanPrompt, Action: true, Projected: true})
	register[RunReported](TypeInfo{Type: "run.reported", Doc: "A run ended.", By: []ActorKind{KindDirector, KindSystem}, Needs: CanPlan, Projected: true})
	register[TaskRequested](TypeInfo{Type: "task.requested", Doc: "A task was requested: by the Director, or for a prompt that goes to one Associate at once.", By: []ActorKind{KindDirector, KindSystem}, Needs: CanPlan, Projected: true})
	register[TaskStarted](TypeInfo{Type: "task.started", Doc: "An attempt at a task began.", By: host, Needs: CanRecord, Projected: true})
	register[TaskFinished](TypeInfo{Type: "task.finished", Doc: "The one result of an attempt.", By: []ActorKind{KindAssociate, KindSystem}, Needs: CanWork, Projected: true})
	register[TurnRecorded](TypeInfo{Type: "turn.recorded", Doc: "One model turn of an agent task, or of the Director when it has no task.", By: []ActorKind{KindAssociate, KindDirector}, Needs: CanThink, Projected: false})
	register[ToolCalled](TypeInfo{Type: "tool.called", Doc: "A tool is about to run.", By: []ActorKind{KindAssociate}, Needs: CanWork, Projected: true})
	register[ToolReturned](TypeInfo{Type: "tool.returned", Doc: "A tool ran.", By: []ActorKind{KindAssociate}, Needs: CanWork, Projected: true})
	register[VerificationFinished](TypeInfo{Type: "verification.finished", Doc: "A tree was checked.", By: host, Needs: CanRecord, Projected: true})
	register[CommandStarted](TypeInfo{Type: "command.started", Doc: "The user's own command started in a terminal box.", By: clients, Needs: CanExec, Projected: true})
	register[CommandFinished](TypeInfo{Type: "command.finished", Doc: "The user's own command ended.", By: clientsOrHost, Needs: CanExec, Projected: true})
}

// Line is a command as its user would type it.
func (c CommandStarted) Line() string {
	if len(c.Argv) == 3 && c.Argv[1] == "-c" {
		return c.Argv[2]
	}
	return strings.Join(c.Argv, " ")
}
