package task

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch/catalogue"
	"choir.dev/choiros/internal/dispatch/look"
	"choir.dev/choiros/internal/dispatch/loops"
	"choir.dev/choiros/internal/dispatch/outside"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/dispatch/scribe"
	"choir.dev/choiros/internal/dispatch/slots"
	story "choir.dev/choiros/internal/run"
)

// MaxAttempts bounds the attempts at one task, and maxStarts the starts of one attempt, over restarts.
const (
	MaxAttempts = 3
	maxStarts   = 3
)

// ErrClosing is the cause of every context when the dispatcher closes, or of one run's when it is parked. What is under way
// then stays unfinished in the log, and is continued at the next start, or when the run is taken up.
var ErrClosing = errors.New("the computer goes to sleep")

// ErrCancelled is the cause when the user cancels a run.
var ErrCancelled = errors.New("cancelled by the user")

// Options configure a Host; dispatch.Options describes those that it has, too.
type Options struct {
	CID         contract.CID
	Blobs       ports.Blobs
	Boxes       ports.Boxes
	Workspace   ports.Workspace
	Documents   ports.Documents
	Models      ports.Models
	Egress      ports.Egress
	BeyondGrant func(ctx context.Context, spec contract.EgressSpec) ([]string, error)
	Logger      *slog.Logger
	Tools       *catalogue.Catalogue
	Briefs      *look.Briefs
	Render      ports.Renderer
	Install     ports.Installer
	Programs    map[string]ports.Program // the agent programs that a task may name
	Version     string                   // ours, as programs are told
	Repairs     int                      // how often the loop of an attempt is asked to repair what the checks found
	Turns       int                      // model turns of one loop; 0 leaves the harness's default
	Parallel    int                      // how many overlays may be removed at once
	Times       ports.Times
	Now         func() time.Time
}

// Host is what the attempts of one computer share. It is safe for concurrent use.
type Host struct {
	Options
	// publishing is held while the live tree is being changed, so that no task publishes into another's
	// half-finished publish.
	publishing sync.Mutex
	// merging is held from asking who else changed the same paths until the log says that this was merged.
	merging  sync.Mutex
	removals slots.Slots  // one slot for each overlay that may be removed at once
	leaving  outside.Lock // by calls that change something outside, while it is decided whether they may
}

// NewHost starts nothing.
func NewHost(o Options) *Host { return &Host{Options: o, removals: make(slots.Slots, o.Parallel)} }

// Removing reports whether as many overlays are being removed as may be.
func (h *Host) Removing() bool { return len(h.removals) == cap(h.removals) }

// closing reports whether the run leaves this process, and what is under way as it is.
func closing(r Run) bool { return r.Awake().Err() != nil }

// kill ends a box. No box may be left running, so a failure is logged as an error.
func (h *Host) kill(run string, b ports.Box) {
	loops.Kill(h.Logger, run, b)
}

// Run is what an attempt needs of the run that it belongs to.
type Run interface {
	// Context ends when the run is cancelled or ends, or leaves this process; its cause says which.
	Context() context.Context
	// Awake ends when the run leaves this process without having ended: the dispatcher closes, or the run is parked.
	Awake() context.Context
	// Gone returns why the run ends although nobody ended it: events that it depends on can't be read.
	Gone() error
	// Budget returns the run's budget.
	Budget() contract.Budget
	// Waited returns how long the run was paused or waited for its user.
	Waited() time.Duration
	// Story calls look with what the log says of the run, which nothing changes meanwhile.
	Story(look func(*story.Run))
	// KeptSince returns what loops are told of facts that were remembered or forgotten since the run began.
	KeptSince(ctx context.Context) ([]string, error)
	// Meanwhile returns what the loop of an attempt is told of files that others changed while it works with them.
	Meanwhile(ctx context.Context, t ports.TaskRef) []string
	// Until waits until cond, which is called as by Story, holds.
	Until(ctx context.Context, cond func(*story.Run) bool) error
	// Before returns what the loop of a task is told of what was before its run; "" if a Director tells it.
	Before(ctx context.Context, task string) (string, error)
	// Append stores events of the run. When it returns, the story contains them.
	Append(ctx context.Context, drafts ...contract.Draft) ([]contract.Event, error)
	// Scribe returns who stores what a loop of the run says, also when the run was cancelled.
	Scribe() *scribe.Scribe
	// Settle sets the run's status to what the run is doing now, or waits for.
	Settle(ctx context.Context) error
	// Stood records that the run stood still.
	Stood(d time.Duration, why contract.StoodWhy)
	// CountRead counts one more try to read the page of an address, and returns how many there were since this process took the run
	// up.
	CountRead(address string) int
	// Waits says that the run waits, until over is called, and for what, as its user is told with the next Settle; ""
	// where that is told otherwise.
	Waits(reason string) (over func())
	// ModelWaits returns what is told when a call of a task's loop waits for its model, and Chosen the model that the
	// user has chosen meanwhile.
	ModelWaits(task string) ports.ModelWaiter
	Chosen() (model string, another <-chan struct{})
	// Rest waits for a person on behalf of a task, whose slot is free for others meanwhile.
	Rest(task string, wait func() error) error
	// Approving counts the open approvals of every other run. Until done is called, no other run requests
	// one.
	Approving() (others int, done func())
	// Answered waits until an approval is answered; what nobody answers in time is denied.
	Answered(ctx context.Context, approval string, deadline time.Time) error
	// LiveElsewhere reports whether another task has edits in the live tree that are neither published nor
	// taken back.
	LiveElsewhere(ctx context.Context, task string) (bool, error)
	// Go calls f in a goroutine that the end of the run waits for.
	Go(f func())
}

// silent records in the run's story that a box stood still, if that is what err says, and returns err.
func (a *attempt) silent(err error) error {
	var s *loops.SilentError
	if errors.As(err, &s) && a.run.Context().Err() == nil {
		a.run.Stood(s.For, contract.StoodBox)
	}
	return err
}
