package run

import (
	"net"
	"slices"
	"strconv"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/attempt"
)

// Run is one run as its events describe it, from nothing else.
type Run struct {
	Head
	ID          string
	Prompt      contract.PromptSubmitted
	User        string
	Cause       string // id of prompt.submitted
	Correlation string
	Sequence    uint64 // of prompt.submitted
	Began       time.Time
	Last        uint64        // sequence of the newest event that was applied
	Newest      time.Time     // when that was
	Away        time.Duration // how long it did not go on: while it waited for its user, and between one process and the next
	Lost        time.Duration // for how long nobody could be answered: no process ran, or the machine stood still
	stood       time.Duration // how long it stood still without being Away
	epoch       uint64        // of the newest event

	Started   bool
	Opened    uint64                  // sequence of run.started
	Facts     []contract.Fact         // that the computer kept then
	Looked    bool                    // whether its user looks at what its tasks made before it is published
	Noted     []contract.Fact         // that its Director noted of what the user said
	Tasks     []*Task                 // in the order they were requested
	Turns     []contract.TurnRecorded // the Director's
	Questions []Question
	Steering  []string
	Said      []Saying // by people, or in their names
	Approvals []*Approval
	Paused    bool
	Switched  string // the model that the user chose for it while it went on
	Cancelled bool
	Report    *contract.RunReported
	Metered   contract.Usage // every model call of the run, its tasks' included
	Web       Web
	Cited     Cited
	Effects   []*Effect // what calls changed outside, or may have, oldest first
}

// Saying is something that a person said to the run, or the desktop's page in their name.
type Saying struct {
	Text string
	By   contract.ActorKind
	// Choice says that it is one of the answers that a model offered.
	Choice bool
}

// Web is what the run's tasks have of the web.
type Web struct {
	Found map[string]bool                 // the addresses that searches named
	Pages map[string]contract.PageFetched // by the address that was asked for
	Read  map[string]string               // when, by the same
}

// Question is a question of a run, and its answer.
type Question struct {
	contract.Question
	Asked     time.Time
	Lost      time.Duration // Lost of the run when it was asked
	Answer    string
	Answered  bool
	ByDefault bool
}

// Task is one task of a run.
type Task struct {
	TaskHead
	Request contract.DirectorTask
	Cause   string // the id of the event that delegated it
	Asked   uint64 // the sequence of task.requested
	Batch   int    // tasks of one delegation share it
	Results map[int]contract.AssociateResult
	Newest  *contract.AssociateResult // the result of the newest attempt that has one
	Now     attempt.Attempt           // the newest attempt; its Number is 0 before the first
	Turns   []contract.TurnRecorded   // of Now, like all that follows
	Calls   []contract.ToolCalled
	Returns map[string]contract.ToolReturned
	Metered contract.Usage
	Repairs []Repair
	Reviews []Review // what was shown to its user before it was published
	Program Program  // what an agent program that does it has said
	Reached []string // host:port pairs that its boxes were let out to
	Refused []string
	Outside map[string]*Effect // by call
	// Outdated is what others changed meanwhile of the live files that its loop works with, as it is told.
	Outdated []contract.Outdated

	worked time.Duration // how long its loop had worked at since
	since  time.Duration // Worked of the run when the newest event came that may have moved it
}

// Program is what an agent program says of an attempt.
type Program struct {
	Calls int    // how many tool calls it has told of
	Said  string // its newest words
}

// Repair is that the loop of an attempt was asked to repair its work.
type Repair struct {
	Turn   int    // the index of the turn behind which it is told, -1 when there is none
	Failed string // what it is told
	Review int    // the review whose comments it is told; 0: its checks failed
}

// Review is that the work of an attempt was shown to its user before it was published.
type Review struct {
	contract.ReviewRequested
	Asked    time.Time
	Answer   *contract.ReviewAnswered // nil while it is open
	By       contract.Actor           // who answered
	Answered time.Time
}

// New is a run without any events.
func New(id string) *Run { return &Run{ID: id, Head: Head{Status: contract.RunQueued}} }

// DocumentID is the id of the run's living document.
func (r *Run) DocumentID() string { return contract.DeriveID(r.ID, "document") }

// Task finds a task by its id, nil when there is none.
func (r *Run) Task(id string) *Task {
	for _, t := range r.Tasks {
		if t.Request.ID == id {
			return t
		}
	}
	return nil
}

// Ended reports whether the task's newest attempt has its result.
func (t *Task) Ended() bool { return t.Newest != nil && t.Newest.Attempt >= t.Now.Number }

// Changes reports whether the task's purpose is to change something.
func (t *Task) Changes() bool { return !t.Request.Kind.OnlyReads() }

// Open is the attempt that is under way, nil when there is none.
func (t *Task) Open() *attempt.Attempt {
	if t.Now.Number == 0 || t.Now.Ended() {
		return nil
	}
	return &t.Now
}

// Apply applies one event of the run. Events must come in the log's order; one that was
// applied before changes nothing, and neither do payloads that are not about runs.
func (r *Run) Apply(e contract.Event, p contract.Payload) {
	if e.Sequence <= r.Last {
		return
	}
	r.Last = e.Sequence
	r.pass(e)
	r.Head.Apply(e, p)
	switch p := p.(type) {
	case *contract.PromptSubmitted:
		r.Prompt, r.User, r.Cause, r.Sequence, r.Began = *p, e.User, e.ID, e.Sequence, e.Time
		r.Correlation, r.Head = e.ID, NewHead(*p)
		r.Said = append(r.Said, Saying{Text: p.Text, By: e.Kind()})
	case *contract.RunStarted:
		r.Started, r.Opened, r.Facts, r.Looked = true, e.Sequence, p.Facts, p.Review
	case *contract.MemoryRemembered:
		r.Noted = append(r.Noted, contract.Fact{ID: e.ID, Text: p.Text})
	case *contract.RunSteered:
		r.Steering = append(r.Steering, p.Text)
		r.Said = append(r.Said, Saying{Text: p.Text, By: e.Kind()})
	case *contract.RunCommanded:
		switch p.Command {
		case contract.CommandPause:
			r.Paused = true
		case contract.CommandResume:
			r.Paused = false
		case contract.CommandCancel:
			r.Cancelled = true
		}
	case *contract.ModelSwitched:
		r.Switched = p.Model
	case *contract.RunStood:
		r.stoodStill(p)
	case *contract.QuestionAsked:
		r.asked(e, p)
	case *contract.QuestionAnswered:
		r.answered(e, p)
	case *contract.UsageMetered:
		r.Metered = r.Metered.Add(p.Usage)
		if t := r.Task(e.Task); t != nil {
			t.Metered = t.Metered.Add(p.Usage)
		}
	case *contract.RunReported:
		if r.Report == nil {
			r.Report = p
		}
	case *contract.TaskRequested:
		r.request(e, p)
	case *contract.TurnRecorded:
		if e.Task == "" {
			r.Turns = put(r.Turns, *p)
		} else if t := r.Task(e.Task); t != nil {
			t.apply(e, p)
		}
	default:
		if r.applyApproval(e, p) || r.applyRead(e, p) || r.applyEffect(e, p) {
			return
		}
		if t := r.Task(e.Task); t != nil {
			r.clock(t, func() { t.apply(e, p) })
		}
	}
}

func (r *Run) asked(e contract.Event, p *contract.QuestionAsked) {
	if !slices.ContainsFunc(r.Questions, func(q Question) bool { return q.ID == p.Question.ID }) {
		r.Questions = append(r.Questions, Question{Question: p.Question, Asked: e.Time, Lost: r.Lost})
	}
}

func (r *Run) answered(e contract.Event, p *contract.QuestionAnswered) {
	for i := range r.Questions {
		if q := &r.Questions[i]; q.ID == p.Question && !q.Answered {
			q.Answer, q.Answered, q.ByDefault = p.Answer, true, p.Default
			r.Said = append(r.Said, Saying{Text: p.Answer, By: e.Kind(), Choice: p.Default || p.Answer == q.Default || slices.Contains(q.Choices, p.Answer)})
		}
	}
}

// pass counts the time since the event before as Away when the run waited for its user, or
// when the process that had written that event had ended.
func (r *Run) pass(e contract.Event) {
	if passed := e.Time.Sub(r.Newest); !r.Newest.IsZero() && passed > 0 {
		if e.Epoch > r.epoch {
			r.Lost += passed
		}
		if e.Epoch > r.epoch || r.Status == contract.RunWaiting {
			r.Away += passed
		}
	}
	r.Newest, r.epoch = e.Time, e.Epoch
}

// stoodStill counts the time in which the machine or choir stood still. Of a run that waited it is Away already.
func (r *Run) stoodStill(p *contract.RunStood) {
	if p.Why == contract.StoodBox {
		return
	}
	still := time.Duration(p.ForMS) * time.Millisecond
	r.Lost += still
	if r.Status != contract.RunWaiting {
		r.stood += still
	}
}

// Worked is for how long the run went on until its newest event.
func (r *Run) Worked() time.Duration {
	return max(0, r.Newest.Sub(r.Began)-r.Away-r.stood)
}

// TaskWorked is for how long the loop of a task's newest attempt worked until the run's newest event. What Worked
// leaves out is left out.
func (r *Run) TaskWorked(t *Task) time.Duration {
	if t.Now.State != contract.AttemptWorking {
		return t.worked
	}
	return t.worked + max(0, r.Worked()-t.since)
}

// clock keeps for how long the loop of a task's newest attempt worked over something that may move the attempt.
func (r *Run) clock(t *Task, move func()) {
	worked, number := r.TaskWorked(t), t.Now.Number
	move()
	if t.Now.Number != number {
		worked = 0
	}
	t.worked, t.since = worked, r.Worked()
}

func (r *Run) request(e contract.Event, p *contract.TaskRequested) {
	if r.Task(p.Task.ID) != nil {
		return
	}
	t := &Task{TaskHead: NewTaskHead(p.Task), Request: p.Task, Cause: e.Causation, Asked: e.Sequence, Results: map[int]contract.AssociateResult{}, Returns: map[string]contract.ToolReturned{}}
	if n := len(r.Tasks); n > 0 {
		t.Batch = r.Tasks[n-1].Batch
		if r.Tasks[n-1].Cause != e.Causation {
			t.Batch++
		}
	}
	r.Tasks = append(r.Tasks, t)
}

func (t *Task) apply(e contract.Event, p contract.Payload) {
	t.move(e, p)
	t.TaskHead.Apply(e, p)
	switch p := p.(type) {
	case *contract.TaskFinished:
		if _, twice := t.Results[p.Result.Attempt]; twice {
			return
		}
		t.Results[p.Result.Attempt] = p.Result
		if t.Newest == nil || p.Result.Attempt >= t.Newest.Attempt {
			r := p.Result
			t.Newest = &r
		}
	case *contract.TurnRecorded:
		if p.Attempt == t.Now.Number {
			t.Turns = put(t.Turns, *p)
		}
	case *contract.RepairRequested:
		if p.Attempt == t.Now.Number && t.Now.State == contract.AttemptRepairing && t.Now.Last == e.Sequence {
			behind := -1
			if n := len(t.Turns); n > 0 {
				behind = t.Turns[n-1].Index
			}
			t.Repairs = append(t.Repairs, Repair{behind, p.Failed, p.Review})
		}
	case *contract.ReviewRequested:
		if p.Attempt == t.Now.Number && t.Now.State == contract.AttemptReviewing && t.Now.Last == e.Sequence {
			t.Reviews = append(t.Reviews, Review{ReviewRequested: *p, Asked: e.Time.UTC()})
		}
	case *contract.ReviewAnswered:
		if n := len(t.Reviews); n > 0 && p.Attempt == t.Now.Number && t.Now.State == contract.AttemptReviewed && t.Now.Last == e.Sequence {
			answer := *p
			t.Reviews[n-1].Answer, t.Reviews[n-1].By, t.Reviews[n-1].Answered = &answer, e.By(), e.Time.UTC()
		}
	case *contract.Outdated:
		if p.Attempt == t.Now.Number {
			t.Outdated = append(t.Outdated, *p)
		}
	case *contract.ToolCalled:
		if p.Attempt == t.Now.Number {
			t.Calls = append(t.Calls, *p)
		}
	case *contract.ProgramReported:
		if p.Attempt == t.Now.Number {
			t.Program.Calls = max(t.Program.Calls, p.Calls)
			if p.What == contract.ProgramSaid {
				t.Program.Said = p.Text
			}
		}
	case *contract.ToolReturned:
		if p.Attempt == t.Now.Number {
			t.Returns[p.Call] = *p
			t.Now.Resumes = min(t.Now.Resumes, 1) // it got on, so what interrupts it next is counted anew
		}
	case *contract.EgressDecided:
		list := &t.Refused
		if e.Type == "egress.allowed" {
			list = &t.Reached
		}
		*list = AddHost(*list, net.JoinHostPort(p.Host, strconv.Itoa(p.Port)))
	case *contract.PublishStarted:
		switch {
		case p.Live:
			t.Now.Live = true
		case t.Now.State == contract.AttemptPublishing:
			t.Now.Decided = true
		}
	case *contract.PublishFinished:
		if t.Now.State == contract.AttemptPublishing || p.Inverted {
			t.Now.Live = false
		}
	}
}

// AddHost adds a host:port to a list, once, up to the number that a result may hold.
func AddHost(list []string, hostport string) []string {
	if len(list) >= 100 || len(hostport) > 300 || slices.Contains(list, hostport) {
		return list
	}
	return append(list, hostport)
}

// move applies a transition of the newest attempt, or of the one after it. It ignores what
// is illegal or of an older attempt.
func (t *Task) move(e contract.Event, p contract.Payload) {
	number, to := attempt.To(p)
	switch {
	case to == "" || number < t.Now.Number:
		return
	case number > t.Now.Number:
		first, err := attempt.Attempt{Number: number}.Apply(e.Sequence, p)
		if err != nil {
			return
		}
		t.next(first)
	default:
		if moved, err := t.Now.Apply(e.Sequence, p); err == nil {
			t.Now = moved
		}
	}
}

// next makes an attempt the newest one, without anything else known of it.
func (t *Task) next(a attempt.Attempt) {
	t.Now, t.Turns, t.Calls, t.Metered = a, nil, nil, contract.Usage{}
	t.Reached, t.Refused, t.Repairs, t.Reviews, t.Program, t.Outside, t.Outdated = nil, nil, nil, nil, Program{}, nil, nil
	t.Returns = map[string]contract.ToolReturned{}
}

func put(list []contract.TurnRecorded, t contract.TurnRecorded) []contract.TurnRecorded {
	for i := range list {
		if list[i].Index == t.Index {
			list[i] = t
			return list
		}
	}
	return append(list, t)
}

// Unreturned are the calls of the newest attempt whose return is not in the log.
func (t *Task) Unreturned() []contract.ToolCalled {
	var out []contract.ToolCalled
	for _, c := range t.Calls {
		if _, ok := t.Returns[c.Call]; !ok {
			out = append(out, c)
		}
	}
	return out
}

// NewestCheckpoint is the newest one that holds work of the run.
func (r *Run) NewestCheckpoint() string {
	for i := len(r.Tasks) - 1; i >= 0; i-- {
		if l := r.Tasks[i].Newest; l != nil && l.Head != "" {
			return l.Head
		}
	}
	return ""
}
