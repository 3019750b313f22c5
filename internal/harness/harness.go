package harness

import (
	"context"
	"errors"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/fault"
)

// Model answers one turn. onDelta gets text as it arrives and may be nil.
// A *contract.TurnError in the error's chain says whether a repeat can help.
type Model interface {
	Turn(ctx context.Context, req contract.TurnRequest, onDelta func(string)) (contract.Turn, error)
}

// Tools is what the model may use.
type Tools interface {
	// Specs describes the tools; it is read once, when the loop starts.
	Specs() []contract.ToolSpec
	// ReadOnly reports whether repeating a call of the tool is harmless.
	ReadOnly(name string) bool
	// Call runs one call whose name and arguments were checked. An error ends
	// the loop; what the model should see and react to is a Return.
	Call(ctx context.Context, call contract.ToolCall) (Return, error)
}

// Return is the outcome of a tool call. End ends the loop: the model is done.
type Return struct {
	Content string
	Images  []contract.Image // kept by the host
	IsError bool
	End     bool
}

// Record is one turn as it is kept. Returns is nil while its calls are running:
// each turn is recorded twice under the same Index, and the newer one counts.
type Record struct {
	Index   int
	Told    string // what the request that this turn answers said last; of turn 0, the opening
	Message contract.Message
	Stop    contract.StopReason
	Returns []contract.Message
	Usage   contract.Usage
	// Compacted says that this turn is a summary, in the place of earlier ones.
	Compacted *contract.Compaction
}

// Limits bound a loop beside its budget. Zero values get the defaults.
type Limits struct {
	Turns         int // model turns; 200
	Context       int // bytes of one request, see ContextFor; 96 KiB
	Return        int // bytes of one tool return as the model sees it; an eighth of Context, 16 to 64 KiB
	Text          int // bytes of text kept from one turn; 32 KiB
	CallsPerTurn  int // tool calls run from one turn; 16
	Nudges        int // turns in a row without a usable call before it stops; 3
	RepeatWarn    int // same call, same outcome: the model is told; 3
	RepeatStop    int // … and the loop stops; 6
	ModelAttempts int // tries for one turn when the error may pass; 3
	TurnTokens    int // max_tokens of a request; 0 leaves it to the gateway's catalogue
}

func (l Limits) withDefaults() Limits {
	def := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&l.Turns, 200)
	def(&l.Context, defaultContext)
	def(&l.Return, min(max(l.Context/8, 16<<10), 64<<10))
	def(&l.Text, 32<<10)
	def(&l.CallsPerTurn, 16)
	def(&l.Nudges, 3)
	def(&l.RepeatWarn, 3)
	def(&l.RepeatStop, 6)
	def(&l.ModelAttempts, 3)
	return l
}

const (
	defaultContext = 96 << 10
	maxContext     = 4 << 20
	bytesPerToken  = 3 // as the gateway reckons; source code has more
)

// ContextFor is how many bytes of a conversation a model is sent whose window is so many tokens: 60 % of
// it, so that the answer and what is reckoned wrongly have room. An unknown window, 0, gives the default.
func ContextFor(window int) int {
	if window <= 0 {
		return defaultContext
	}
	return min(max(window/100*60*bytesPerToken, 16<<10), maxContext)
}

// Options say what to drive and within which bounds. Model, Tools and Opening are
// required.
type Options struct {
	Model     Model
	ModelName string // empty: the role's default
	Tools     Tools
	System    string
	// Opening builds the first message. It is asked once in the life of a loop: what it said is recorded with
	// the first turn, and never rewritten. It is clipped to a third of Limits.Context.
	Opening func(ctx context.Context) (string, error)
	// News returns what is told at the end of the next request: what the user said, and what has changed. Text that
	// was told already, and is the newest told under its first line, is not told again. It may block while the run is paused; that time does
	// not count against the budget. nil means nothing.
	News func(ctx context.Context) ([]string, error)
	// Facts returns what the host's log knows of the work so far, for a compaction: what was changed, run and
	// checked, word for word, with the ids of calls, in at most max bytes. nil: what the turns themselves say.
	Facts func(ctx context.Context, max int) (string, error)
	// Record keeps a turn; the loop goes on only after it returned. nil keeps nothing.
	Record func(ctx context.Context, r Record) error
	// OnDelta gets the model's text as it arrives.
	OnDelta func(text string)
	// History is what was recorded before, oldest first, each turn once.
	History []Record
	// Budget bounds the loop; zero fields do not. Spent is what History used.
	Budget contract.Budget
	Spent  contract.Usage
	Limits Limits
	// EndTool names the tool that ends the loop, for nudges.
	EndTool string
	// Backoff is the pause before try n (from 1) of a model turn; nil: 1 s, 2 s, 4 s…
	Backoff func(n int) time.Duration
	// Used is how much of the wall-clock budget the host counts as used. It is asked before
	// the loop ends for that reason: the loop can't tell a host that stood still from one
	// that works. nil: the loop's own count decides.
	Used func(ctx context.Context) (time.Duration, error)
	// Now is the clock; nil: one that counts only the time in which this process ran.
	Now func() time.Time
}

// Reason is why a loop ended.
type Reason string

// Why a loop ended.
const (
	Finished   Reason = "finished"   // a tool said so
	Budget     Reason = "budget"     // Detail names the bound
	Repetition Reason = "repetition" // the same call with the same outcome, again and again
	Silence    Reason = "silence"    // no usable tool call in several turns
	Refused    Reason = "refused"    // the model declined
	ModelError Reason = "model"      // the model gave no turn
)

// Outcome says why a loop ended and what it used.
type Outcome struct {
	Reason Reason
	Detail string // one sentence for a person
	Text   string // the last text the model wrote
	Turns  int
	Usage  contract.Usage
}

// Run drives the model until the loop ends. It returns an error only for what is not an
// outcome: the context ended, or the machinery of a tool or of the recorder failed.
func Run(ctx context.Context, o Options) (Outcome, error) {
	defer awake.Hold()()
	l, err := newLoop(o)
	if err != nil {
		return Outcome{}, err
	}
	out, err := l.run(ctx)
	out.Turns, out.Usage = l.index, l.usage()
	out.Text = l.lastText
	return out, err
}

func newLoop(o Options) (*loop, error) {
	if o.Model == nil || o.Tools == nil || o.Opening == nil {
		return nil, fault.New("harness.Run", fault.Invalid, "Give a model, tools and an opening.", errors.New("incomplete options"))
	}
	if o.Now == nil {
		base := time.Now()
		o.Now = func() time.Time { return base.Add(awake.Now()) }
	}
	if o.Backoff == nil {
		o.Backoff = func(n int) time.Duration { return time.Second << min(n-1, 4) }
	}
	o.Limits = o.Limits.withDefaults()
	l := &loop{Options: o, specs: o.Tools.Specs(), seen: newRepeats(), ids: map[string]bool{}, started: o.Now(), spent: o.Spent}
	if err := l.compile(); err != nil {
		return nil, err
	}
	l.restore(o.History)
	return l, nil
}
