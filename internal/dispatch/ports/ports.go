package ports

import (
	"context"
	"io"
	"iter"
	"net/http"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/associate/verify"
	"choir.dev/choiros/internal/document"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/view"
)

// Log is the computer's log. *ledger.Log is one.
type Log interface {
	Append(ctx context.Context, drafts ...contract.Draft) ([]contract.Event, error)
	Read(ctx context.Context, after uint64, limit int) ([]contract.Event, error)
	// Follow yields what is behind a sequence in the log's order, and waits for
	// more until ctx ends.
	Follow(ctx context.Context, after uint64) iter.Seq2[contract.Event, error]
	Payload(ctx context.Context, e contract.Event) (contract.Payload, error)
	Last() uint64
}

// Past answers questions about the log from an index, so that it need not be
// read from where the oldest open run begins.
type Past interface {
	// Unfinished lists the runs that have not ended, oldest first.
	Unfinished(ctx context.Context) ([]string, error)
	// RunEvents returns a page of a run's events behind a sequence, in order, and
	// behind which sequence the next page begins; without more there is none of
	// the run's in the log before it.
	RunEvents(ctx context.Context, run string, after uint64) (events []contract.Event, next uint64, more bool, err error)
}

// Blobs keeps outputs that are too long for an event.
type Blobs interface {
	Put(ctx context.Context, cid contract.CID, r io.Reader) (contract.BlobRef, int64, error)
}

// BoxRequest says which box is wanted.
type BoxRequest struct {
	ID   string // unique; [a-z0-9-]
	Kind contract.BoxKind
	Run  string
	Task string
	// Overlay is the tree of a task or verify box; nil for the loops' boxes.
	Overlay Overlay
	// Commit is what a verify box checks: the overlay's task tree or a merge of
	// it. The box gets that tree with a throwaway upper.
	Commit string
	// Go says that a check with Go's own tools is to run in it.
	Go bool
	// Shell says that a check which may need the shell's dependencies is to run in
	// it, so that it is worth waiting for them. Those that are there are in any.
	Shell bool
	// Dependencies are what was installed for the check.
	Dependencies []Dependencies
	// Handler serves what the box asks of the host, CONNECT included; nil
	// refuses everything. Network says that CONNECT is served, so the box needs
	// its loopback proxy.
	Handler http.Handler
	Network bool
}

// LockRequest names lock files whose packages are wanted in a check's box.
type LockRequest struct {
	Run     string
	Task    string
	Overlay Overlay
	// Commit is the tree whose locks count; those among Restored are the base's.
	Commit   string
	Restored []string
	Of       contract.LockOf
	Locks    []verify.Lock
}

// Dependencies are packages that stay where they are until they are released.
type Dependencies interface {
	Release()
}

// Installer installs what lock files name, for checks, under the computer's own
// grant and nothing of the task's. What can't be installed is said; a problem of
// one lock is none of the others.
type Installer interface {
	Install(ctx context.Context, r LockRequest) (Dependencies, []contract.Installation)
}

// Boxes opens boxes. Its error is what a person reads when none can be had.
type Boxes interface {
	Open(ctx context.Context, r BoxRequest) (Box, error)
}

// Box is one running box.
type Box interface {
	ID() string
	// Transport reaches the box's guest.
	Transport() http.RoundTripper
	// Done is closed when nothing of the box is left; Err then says why it ended.
	Done() <-chan struct{}
	Err() error
	// Kill ends everything in the box and returns when nothing is left. Safe to
	// call again.
	Kill() error
}

// TaskRef names an attempt. Its overlay and publishes are keyed by it.
type TaskRef struct {
	Run     string
	Task    string
	Attempt int
}

// Overlay is an attempt's copy of the workspace.
type Overlay interface {
	// Base is the commit it started from.
	Base() string
}

// Merged is the three-way merge of an overlay's base, the live tree as it is,
// and the task's tree: what publishing would make of the live tree. Nothing is
// applied yet. Changes and Diff are the task's own, against its base.
type Merged struct {
	Commit string
	Tree   string
	// Work is the commit of the task's own tree that was merged: what is published
	// is what was read then. Empty: it is read.
	Work      string
	Changes   []contract.Change
	Diff      string // may be cut at a megabyte; DiffCut then
	DiffCut   bool
	Conflicts []view.Kept // what stays as the user has it
	// Installed lists ignored folders into which the task put something, which
	// stays out of the live tree.
	Installed []string
	// Left lists what the task's box left behind and no tree can take.
	Left []view.Kept
	// Scope lists what its verification depends on, once it was verified; what
	// changes elsewhere in the live tree doesn't touch it. Empty: all.
	Scope []string
}

// Published is a publish that was applied, and its checkpoint.
type Published struct {
	Checkpoint string
	Tree       string
	Conflicts  []view.Kept // what stays as the user has it
	Proposed   []string    // those of them whose change waits for the user, as a document's proposal
}

// GitRequest is one step of a task of kind git.
type GitRequest struct {
	Run  string
	Task string
	Step contract.GitStep
}

// GitReply is what it gave. Checkpoint is set when the operation made one.
type GitReply struct {
	Output     string
	Checkpoint string
}

// Workspace is the tree and its history. Its methods append the events that
// belong to them (checkpoint.created, publish.started, …). Errors with
// fault.Conflict mean that the live tree moved.
type Workspace interface {
	// Checkpoint commits the live tree as it is before an attempt; with nothing
	// changed it returns the newest checkpoint.
	Checkpoint(ctx context.Context, t TaskRef, message string) (commit string, err error)
	// Begin makes an empty overlay on base; Reopen returns the one an earlier
	// process left, as it stands. fault.InUse: a box still holds it.
	Begin(ctx context.Context, t TaskRef, base string) (Overlay, error)
	Reopen(ctx context.Context, t TaskRef, base string) (Overlay, error)
	// Settle makes durable what the task has written into the overlay: a resumed
	// attempt goes on with it as it stands.
	Settle(ctx context.Context, o Overlay) error
	// PublishLive publishes what the overlay now holds under the paths that are
	// published once per tool call; it returns how many paths that were.
	PublishLive(ctx context.Context, o Overlay) (paths int, err error)
	// Merge commits the task's tree and merges it. The task's box is dead.
	Merge(ctx context.Context, o Overlay) (Merged, error)
	// Beside says which of paths are files in each of commits; nil when that is not
	// all there is to say: one of names lies in their folders or above, say.
	Beside(ctx context.Context, commits, paths, names []string) ([][]bool, error)
	// Publish applies m and checkpoints. Unless force is set, fault.Conflict
	// says that the live tree changed so that the result would not be m.Tree
	// under m.Scope; nothing was applied then.
	Publish(ctx context.Context, o Overlay, m Merged, verified contract.VerificationStatus, force bool) (Published, error)
	// Invert takes back what PublishLive published, but for the paths it names.
	// Safe to call again.
	Invert(ctx context.Context, o Overlay) ([]view.Kept, error)
	// Keep leaves the overlay's tree behind a ref to look at, which outlives it, Drop
	// removes the overlay. Safe to call again.
	Keep(ctx context.Context, o Overlay) error
	Drop(ctx context.Context, o Overlay) error
	// Sweep removes every overlay but those of the attempts named: what is left of
	// ended ones whose Drop nobody lived to do. No attempt is at work.
	Sweep(ctx context.Context, but []TaskRef) error
	// Git does one operation on the history.
	Git(ctx context.Context, r GitRequest) (GitReply, error)
	// ReadFile reads a file of the live tree, at most max bytes.
	ReadFile(ctx context.Context, path string, max int) ([]byte, error)
	// Folders lists the upper folders of the live tree, bounded.
	Folders(ctx context.Context) ([]string, error)
	// Artifact reads a file of a commit whole, to keep it as a blob.
	Artifact(ctx context.Context, commit, path string) (io.ReadCloser, error)
}

// Documents are the living documents.
type Documents interface {
	// Get returns the newest revision.
	Get(ctx context.Context, id string) (state.Revision, error)
	// StartRun makes the document of a run; one that is there is left as it is.
	StartRun(ctx context.Context, id, run, title, path string, says document.Sections) error
	// UpdateRun brings it up to date. What the user has written stays, whatever
	// they write in the same moment.
	UpdateRun(ctx context.Context, id, run string, says document.Sections) error
}

// ModelScope says for whom model turns are asked.
type ModelScope struct {
	Run        string
	Task       string // "" for the Director
	Role       contract.ActorKind
	Model      string // the prompt's choice; "" is the role's default
	Budget     contract.Budget
	TaskBudget contract.Budget
}

// Models answers model turns.
type Models interface {
	// Handler serves POST /model/turns for the scope.
	Handler(s ModelScope) http.Handler
	// Forget drops what is kept of a run that has ended.
	Forget(run string)
	// Resolve names what a role would use; fault.Missing when there is no model.
	Resolve(ctx context.Context, role contract.ActorKind, model string) (provider, name string, err error)
}

// EgressScope says which box is let out.
type EgressScope struct {
	Run  string
	Task string
	Box  string
	Kind contract.BoxKind
	// Approved is what a person allowed this box beyond the computer's grant.
	Approved []string
}

// Egress makes the handler that serves CONNECT for a box under a policy. It
// appends egress.allowed and egress.denied itself; decided tells the task's
// result of them and may be called from any goroutine.
type Egress func(s EgressScope, spec contract.EgressSpec, decided func(hostport string, allowed bool)) (http.Handler, error)

// Renderer looks at a built desktop: it is the third part of the shell's
// verification, after type check and build.
type Renderer interface {
	// Render opens the desktop built from the commit and says whether it paints
	// without throwing. A command's form makes it a check like any other.
	Render(ctx context.Context, o Overlay, commit string) (contract.Command, error)
}
