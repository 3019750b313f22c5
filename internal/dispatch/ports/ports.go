package ports

import (
	"context"
	"io"
	"iter"
	"net/http"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/associate/verify"
	"choir.dev/choiros/internal/document"
	"choir.dev/choiros/internal/memory"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/internal/webpage"
	"choir.dev/choiros/internal/websearch"
)

// Log is the computer's log. *ledger.Log is one.
type Log interface {
	Append(ctx context.Context, drafts ...contract.Draft) ([]contract.Event, error)
	Read(ctx context.Context, after uint64, limit int) ([]contract.Event, error)
	// Follow yields the events behind a sequence in the log's order, and waits for more
	// until ctx ends.
	Follow(ctx context.Context, after uint64) iter.Seq2[contract.Event, error]
	Payload(ctx context.Context, e contract.Event) (contract.Payload, error)
	Last() uint64
}

// Past answers questions about the log from an index, so that the log need not be read from
// the beginning of the oldest open run.
type Past interface {
	// Unfinished lists the runs that have not ended, oldest first.
	Unfinished(ctx context.Context) ([]string, error)
	// RunEvents returns a page of a run's events behind a sequence, in order, and the
	// sequence behind which the next page begins. Without more, the log has no further
	// event of the run up to next.
	RunEvents(ctx context.Context, run string, after uint64) (events []contract.Event, next uint64, more bool, err error)
	// Recent returns up to most runs that have ended, newest first.
	Recent(ctx context.Context, most int) ([]state.Run, error)
}

// Blobs keeps outputs that are too long for an event.
type Blobs interface {
	Put(ctx context.Context, cid contract.CID, r io.Reader) (contract.BlobRef, int64, error)
	Open(ctx context.Context, cid contract.CID, ref contract.BlobRef) (io.ReadSeekCloser, int64, error)
}

// BoxRequest describes the box that is wanted.
type BoxRequest struct {
	ID   string // unique; [a-z0-9-]
	Kind contract.BoxKind
	Run  string
	Task string
	// Overlay is the tree of a task or verify box; nil for the loops' boxes.
	Overlay Overlay
	// Commit is the tree that a verification's box checks: the overlay's task tree or a
	// merge of it. The box's changes to it are thrown away.
	Commit string
	// Go says that a check with Go's own tools will run in the box.
	Go bool
	// Shell says that a check which may need the shell's dependencies will run in the box,
	// so opening it waits for their installation. Dependencies that are installed already
	// are in any box.
	Shell bool
	// Dependencies are the packages that were installed for the check.
	Dependencies []Dependencies
	// Handler serves what the box asks of the host, including CONNECT; nil refuses
	// everything. Network says that CONNECT is served, so the box needs its loopback
	// proxy.
	Handler http.Handler
	Network bool
	// ModelToken is what programs in the box may ask the model with, at an address of the
	// box's, from where it comes to Handler below /model/. Empty: they can't ask.
	ModelToken string
}

// LockRequest names lock files whose packages are wanted in the box of a check.
type LockRequest struct {
	Run     string
	Task    string
	Overlay Overlay
	// Commit is the tree that the lock files are read from; those listed in Restored are
	// read from the base instead.
	Commit   string
	Restored []string
	Of       contract.LockOf
	Locks    []verify.Lock
}

// Dependencies are installed packages, which are not removed before Release.
type Dependencies interface {
	Release()
}

// Installer installs the packages that lock files name, for checks. It uses the computer's
// own network grant, not the task's. What can't be installed is reported; a problem with
// one lock file does not affect the others.
type Installer interface {
	Install(ctx context.Context, r LockRequest) (Dependencies, []contract.Installation)
}

// Boxes opens boxes. A person reads the error when no box can be opened.
type Boxes interface {
	Open(ctx context.Context, r BoxRequest) (Box, error)
}

// Box is one running box.
type Box interface {
	ID() string
	// Transport returns a transport to the box's guest.
	Transport() http.RoundTripper
	// Run runs a program in the box's tree until it ends, and returns its exit code, which is
	// 128+n after signal n. Ending ctx kills it. Errors: fault.NotFound, fault.Denied (it
	// can't be started), fault.Unavailable (the box ended).
	Run(ctx context.Context, p Process) (code int, err error)
	// Done is closed when everything in the box has ended; Err then returns why it ended.
	Done() <-chan struct{}
	Err() error
	// Kill ends everything in the box and returns when nothing of it is left. It may be
	// called more than once.
	Kill() error
}

// Process is a program with its streams.
type Process struct {
	Argv        []string
	Env         map[string]string // beside what the box has
	Stdin       io.Reader
	Out, Stderr io.Writer
}

// Program is an agent program that the owner has configured: how it is started in a box.
type Program struct {
	Command []string
	Env     map[string]string
}

// TaskRef names an attempt. It is the key of the attempt's overlay and publishes.
type TaskRef struct {
	Run     string
	Task    string
	Attempt int
}

// Start is what an attempt's tree is made from.
type Start struct {
	// Base is the checkpoint that the work is compared, merged and checked against.
	Base string
	// Kept is the kept tree that the attempt goes on from, which began from Base; empty when
	// it begins from Base itself.
	Kept string
}

// Overlay is an attempt's copy of the workspace.
type Overlay interface {
	// Base returns the commit that the overlay's work is compared, merged and checked against.
	Base() string
}

// Merged is the three-way merge of an overlay's base, the current live tree, and the task's
// tree: what publishing would make of the live tree. Nothing has been applied yet. Changes
// and Diff are the task's own, against its base.
type Merged struct {
	Commit string
	Tree   string
	// Work is the commit of the task's own tree that was merged, so that exactly what was
	// merged is published. Empty: publishing reads the task's tree again.
	Work      string
	Changes   []contract.Change
	Diff      string // may be cut at a megabyte; then DiffCut is set
	DiffCut   bool
	Conflicts []view.Kept // what stays as the user has it
	// Installed lists ignored folders that the task has written to. They are not published
	// to the live tree.
	Installed []string
	// Left lists what the task's box left behind that no tree can hold.
	Left []view.Kept
	// Scope lists the paths that its verification depends on, once it was verified;
	// changes elsewhere in the live tree do not affect the verdict. Empty: all paths.
	Scope []string
}

// Took is what a person took of the work that they were shown: the commit of the task's own tree,
// "" if nobody was asked, and what of it; nothing means all.
type Took struct {
	Work string
	Only []contract.Choice
}

// Published is a publish that was applied, and its checkpoint.
type Published struct {
	Checkpoint string
	Tree       string
	Conflicts  []view.Kept // what stays as the user has it
	Proposed   []string    // those of them whose change waits for the user as a document's proposal
}

// GitRequest is one step of a task of kind git.
type GitRequest struct {
	Run  string
	Task string
	Step contract.GitStep
}

// GitReply is the result of a git step. Checkpoint is set if the step made one.
type GitReply struct {
	Output     string
	Checkpoint string
}

// Workspace is the tree and its history. Its methods append the events that belong to them
// (checkpoint.created, publish.started, …). Errors with fault.Conflict mean that the live
// tree has changed.
type Workspace interface {
	// Checkpoint commits the current live tree before an attempt; if nothing has changed,
	// it returns the newest checkpoint.
	Checkpoint(ctx context.Context, t TaskRef, message string) (commit string, err error)
	// Start returns what a task starts from that names a commit: a checkpoint of this
	// computer, or a kept tree that its log has recorded and that is still kept. All else is
	// fault.NotFound, for a task is checked with the tests and tools of what it starts from.
	Start(ctx context.Context, commit string) (Start, error)
	// Begin makes an empty overlay; Reopen returns, as it stands, the one that an earlier
	// process left. The error is fault.InUse while a box still uses it.
	Begin(ctx context.Context, t TaskRef, from Start) (Overlay, error)
	Reopen(ctx context.Context, t TaskRef, from Start) (Overlay, error)
	// Settle makes what the task has written into the overlay durable, because a resumed
	// attempt continues with it. Where it says that nothing of it is shown live, PublishLive
	// would publish nothing.
	Settle(ctx context.Context, o Overlay) (live bool, err error)
	// PublishLive publishes the overlay's current content of those paths that are
	// published after each tool call; it returns how many paths that were.
	PublishLive(ctx context.Context, o Overlay) (paths int, err error)
	// Merge commits the task's tree and merges it. The task's box must have ended. Where a person
	// took something, that is merged in its place.
	Merge(ctx context.Context, o Overlay, took Took) (Merged, error)
	// Hunks lists what a task's tree changes of the base that it is compared with.
	Hunks(ctx context.Context, base, work string) (files []view.ReviewFile, more int, err error)
	// Choose checks that a choice can be taken from a task's tree. The errors are fault.Conflict when
	// it names what is not there, and fault.Invalid when it can't be taken alone.
	Choose(ctx context.Context, t TaskRef, base, work string, only []contract.Choice) error
	// Contains returns for each of commits which of paths are files in it. It returns nil if
	// that does not tell everything, for example because a file with one of names is in
	// their folders or above.
	Contains(ctx context.Context, commits, paths, names []string) ([][]bool, error)
	// Changed lists what differs between two checkpoints, up to a bound.
	Changed(ctx context.Context, from, to string) ([]contract.Change, error)
	// LiveDiff is the unified diff of files as a checkpoint has them and as they are live, cut at max bytes. It shows nothing that no
	// checkpoint would hold.
	LiveDiff(ctx context.Context, from string, paths []string, max int) (diff string, err error)
	// Publish applies m and makes a checkpoint. Unless force is set, it returns
	// fault.Conflict and applies nothing if the live tree has changed so that the result
	// would not be m.Tree under m.Scope.
	Publish(ctx context.Context, o Overlay, m Merged, verified contract.VerificationStatus, force bool) (Published, error)
	// Invert reverts what PublishLive published, except for the paths that it returns. It
	// may be called more than once.
	Invert(ctx context.Context, o Overlay) ([]view.Kept, error)
	// Keep keeps the overlay's tree under a git ref, which outlives the overlay and is durable
	// when Keep returns; nil if the tree does not differ from its base. Drop removes the
	// overlay. Both may be called more than once.
	Keep(ctx context.Context, o Overlay) (*contract.KeptTree, error)
	Drop(ctx context.Context, o Overlay) error
	// Sweep removes every overlay except those of the named attempts: what a crash left of
	// ended attempts before Drop. No attempt may be at work.
	Sweep(ctx context.Context, but []TaskRef) error
	// Git does one operation on the history.
	Git(ctx context.Context, r GitRequest) (GitReply, error)
	// ReadFile reads a file of the live tree, at most max bytes.
	ReadFile(ctx context.Context, path string, max int) ([]byte, error)
	// Folders lists the upper folders of the live tree, up to a bound.
	Folders(ctx context.Context) ([]string, error)
	// Artifact opens a file of a commit, to store it as a blob.
	Artifact(ctx context.Context, commit, path string) (io.ReadCloser, error)
}

// Documents are the living documents.
type Documents interface {
	// Get returns the newest revision.
	Get(ctx context.Context, id string) (state.Revision, error)
	// StartRun makes the document of a run; an existing one is left as it is.
	StartRun(ctx context.Context, id, run, title, path string, says document.Sections) error
	// UpdateRun brings it up to date. What the user has written stays, even what they
	// write at the same moment.
	UpdateRun(ctx context.Context, id, run string, says document.Sections) error
	// Adopt makes a document of a file that a task published, unless it is one's already.
	Adopt(ctx context.Context, run, task, path, title, body string) error
	// Citations returns those of the computer's citations that have these labels.
	Citations(ctx context.Context, labels []string) ([]contract.Citation, error)
}

// Memory is what people told the computer to keep. *memory.Memory is one.
type Memory interface {
	// Kept lists what is kept, oldest first.
	Kept(ctx context.Context) ([]state.Fact, error)
	// Since lists what was remembered, forgotten or restored behind a sequence, oldest first.
	Since(ctx context.Context, after uint64) ([]state.Fact, error)
	// Remember keeps what draft holds, a contract.MemoryRemembered, with append; what is kept already in the same
	// words it returns. The error is fault.Exhausted when no more is kept.
	Remember(ctx context.Context, draft contract.Draft, append memory.Append) (state.Fact, error)
}

// ModelScope says on whose behalf a model is called.
type ModelScope struct {
	Run   string
	Task  string // "" for the Director
	Role  contract.ActorKind
	Model string // the prompt's choice; "" is the role's default
	// Effort is how much the model thinks, where the request does not say it: the prompt's choice; "" is the role's.
	Effort     contract.Effort
	Budget     contract.Budget
	TaskBudget contract.Budget
	// Waiter is told when a call waits for its model; nil: it is not waited for long.
	Waiter ModelWaiter
	// Chosen returns the model that the user has chosen for the run, "" for none, and a channel that is closed
	// when they choose another.
	Chosen func() (model string, another <-chan struct{})
	// Hold stores an event of the loop with what it says next, in front of that. nil: what a call cost is stored before its
	// answer is passed on.
	Hold func(contract.Draft) error
}

// ModelWaiter is told about the waits of a loop's calls, and holds them while the run is paused.
type ModelWaiter interface {
	// Ready returns when a call may be tried.
	Ready(ctx context.Context) error
	// Waiting says that a call waits for its model; Resumed that it does not any more.
	Waiting(ctx context.Context, w contract.ModelWaiting)
	Resumed(ctx context.Context, r contract.ModelResumed)
	// Settled returns, once for each turn, when its loop may go on with it.
	Settled(ctx context.Context) error
}

// ModelGrant lets the programs of one box ask the model.
type ModelGrant struct {
	Token string // what their requests carry
	// Ready returns why no call may be made now: fault.Unavailable if one may later.
	Ready func() error
}

// Rehearsal is the provider that plays plans from files: it understands nothing that it is told.
const Rehearsal = "rehearsal"

// Models serves model turns.
type Models interface {
	// Handler serves POST /model/turns for the scope.
	Handler(s ModelScope) http.Handler
	// Ask makes one call that belongs to no loop's conversation, such as of who judges a citation. It is metered
	// and bounded like the scope's others.
	Ask(ctx context.Context, s ModelScope, req contract.TurnRequest) (contract.Turn, error)
	// Inward serves the model to the programs of a task's box that was granted it, in the
	// vendors' wire formats below /v1/.
	Inward(s ModelScope, g ModelGrant) http.Handler
	// Forget drops what is kept in memory of a run that has ended.
	Forget(run string)
	// Resolve returns the provider and the model that a role would use; fault.Missing when
	// there is no model.
	Resolve(ctx context.Context, role contract.ActorKind, model string) (provider, name string, err error)
	// Usable returns what Resolve does for a model that a person chooses for a run which goes on under a budget, and
	// fails with fault.Missing too when that budget can't bound it.
	Usable(ctx context.Context, s ModelScope) (provider, name string, err error)
	// Window returns how many tokens the model that a role would use reads at once; 0 when that is not known.
	Window(ctx context.Context, role contract.ActorKind, model string) int
}

// EgressScope says which box gets access to the network.
type EgressScope struct {
	Run  string
	Task string
	Box  string
	Kind contract.BoxKind
	// Approved lists what a person allowed this box beyond the computer's grant.
	Approved []string
}

// Egress makes the handler that serves CONNECT for a box under a policy. The handler
// appends egress.allowed and egress.denied itself; decided passes the decisions on for the
// task's result and may be called from any goroutine.
type Egress func(s EgressScope, spec contract.EgressSpec, decided func(hostport string, allowed bool)) (http.Handler, error)

// PageRequest asks for a page that a task may read.
type PageRequest struct {
	Run, Task string
	Address   webpage.Address
	// Decided is told of each decision about the network of the box that reads it.
	Decided func(hostport string, allowed bool)
}

// SendRequest asks for a request that a person allowed to be sent.
type SendRequest struct {
	Run, Task string
	Address   webpage.Address // of what is sent
	Sending   webpage.Sending
	Decided   func(hostport string, allowed bool)
}

// Pages reads pages of the web and sends requests, each in a box of its own that has nothing of the computer's in it and
// reaches one host alone.
type Pages interface {
	// Fetch reads a page. An error means that there was no box, or that it ended.
	Fetch(ctx context.Context, r PageRequest) (webpage.Page, error)
	// Send sends a request, one time, however it ends. An error means that nothing was sent. What is not known to have been
	// kept from leaving is said to have been sent.
	Send(ctx context.Context, r SendRequest) (webpage.Answer, error)
}

// Search asks a search service. What it answers is not trusted.
type Search interface {
	// Provider is the service's name.
	Provider() string
	Search(ctx context.Context, query string, most int) ([]websearch.Result, error)
}

// Renderer opens a built desktop in a browser. This is the third part of the shell's
// verification, after type check and build.
type Renderer interface {
	// Render opens the desktop that was built from the commit and reports whether it
	// paints without throwing. The result has the form of a command, so that it is a check
	// like any other.
	Render(ctx context.Context, o Overlay, commit string) (contract.Command, error)
}
