package control

import (
	"context"
	"io"
	"io/fs"
	"iter"
	"net/http"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
)

// Computers finds the computers of this control plane.
type Computers interface {
	// List returns every computer, oldest first.
	List(ctx context.Context) ([]view.Computer, error)
	// Get returns one, awake; it waits for one that is waking, for a while.
	// fault.NotFound when there is none, fault.Unavailable while it is not awake
	// yet, fault.Damaged and others when it does not wake.
	Get(ctx context.Context, cid contract.CID) (Computer, error)
	// History returns a computer's history, also of one that does not wake and
	// is not damaged. It waits as Get does.
	History(ctx context.Context, cid contract.CID) (History, error)
	// Wake tries again to wake a computer that did not wake. It returns at once.
	Wake(ctx context.Context, cid contract.CID, r view.WakeRequest) error
	// Recover brings back what is damaged of a computer from what else knows it. It
	// returns at once; the others stay awake unless what all share is damaged.
	Recover(ctx context.Context, cid contract.CID) error
	// Export writes a tar archive of a computer's files and its events, also of
	// one that does not wake.
	Export(ctx context.Context, cid contract.CID, w io.Writer) error
}

// Computer is one awake computer. Input has been validated for form; every
// method may be called from many goroutines, returns coded errors
// (internal/fault), ends with its context, and reads reflect every event that
// was acknowledged before the call. Requests carry in User who asks.
type Computer interface {
	Info(ctx context.Context) (view.Computer, error)
	// Frame is what the console shows around the desktop.
	Frame(ctx context.Context) (view.Frame, error)
	// Snapshot is what the desktop's first paint needs.
	Snapshot(ctx context.Context) (view.Snapshot, error)
	// Rebuild replays the log into a new state file; with check it only compares.
	Rebuild(ctx context.Context, check bool) (view.Rebuilt, error)

	Log
	Runs
	Approvals
	Network
	Documents
	History
	Files
	Commands
	Desktop
}

// Log is a computer's log as a person may use it.
type Log interface {
	// Act appends a person's intention and sets going what follows from it. The
	// same id with the same content again answers as the first time.
	Act(ctx context.Context, a view.Action) (view.Acted, error)
	// Events returns a page of the log, ascending; its Next goes on.
	Events(ctx context.Context, q view.EventQuery) (view.EventPage, error)
	// Follow yields every event with sequence > after, without gaps, until ctx
	// ends or an error was yielded.
	Follow(ctx context.Context, after uint64) iter.Seq2[contract.Event, error]
	// Last is the sequence of the newest event.
	Last() uint64
}

// Runs are the runs of a computer.
type Runs interface {
	// Runs returns up to limit runs with Sequence < before (0: the newest),
	// newest first, without tasks.
	Runs(ctx context.Context, before uint64, limit int) ([]view.Run, error)
	// Run returns one run with its tasks.
	Run(ctx context.Context, id string) (view.Run, error)
}

// Approvals are what waits for a person. Callers see to it that nobody answers
// but the console and the owner's own program.
type Approvals interface {
	// Approvals returns up to limit with Sequence < before (0: the newest),
	// newest first, and whether there are more: those that are open, or all.
	Approvals(ctx context.Context, all bool, before uint64, limit int) ([]view.Approval, bool, error)
	// Decide answers one. fault.Conflict when the digest is of another act, or
	// it has its answer.
	Decide(ctx context.Context, user, id string, d view.Decision) (view.Acted, error)
}

// Network is what a computer's boxes reached.
type Network interface {
	// Egress sums up what passed the tunnels by host and port, of a run or, when
	// run is empty, of all boxes.
	Egress(ctx context.Context, run string) ([]view.Traffic, error)
}

// Documents are the living documents of a computer.
type Documents interface {
	// Document returns a revision; 0 means the newest.
	Document(ctx context.Context, id string, revision int) (view.Document, error)
	// Proposals returns up to limit of a document's proposals with Sequence <
	// before (0: the newest), newest first, without body and diff, and whether
	// there are more: those that wait for a user, or all.
	Proposals(ctx context.Context, document string, all bool, before uint64, limit int) ([]view.Proposal, bool, error)
	// Proposal returns one with its body and, while it is open, what accepting it
	// would change.
	Proposal(ctx context.Context, document, id string) (view.Proposal, error)
	// Resolve accepts or dismisses a proposal. The same again answers as the first
	// time; fault.Conflict when it ended otherwise.
	Resolve(ctx context.Context, user, document, id string, accept bool) (view.Resolved, error)
}

// History is time travel.
type History interface {
	// Checkpoints returns up to limit with Sequence < before (0: the newest),
	// newest first, and whether there are more.
	Checkpoints(ctx context.Context, before uint64, limit int) ([]view.Checkpoint, bool, error)
	// ShowCheckpoint returns the one whose id begins with id.
	ShowCheckpoint(ctx context.Context, id string) (view.Checkpoint, error)
	// Checkpoint commits the workspace if it changed.
	Checkpoint(ctx context.Context, user, message string) (view.Checkpointed, error)
	Diff(ctx context.Context, r view.DiffRequest) (view.Diff, error)
	Restore(ctx context.Context, r view.RestoreRequest) (view.Restored, error)
	// Appended counts what was appended in a user's name since then.
	Appended(ctx context.Context, since time.Time) (events int, bytes int64, err error)
}

// Files are the files of the live tree. Paths are relative to the workspace's
// root and in contract.ValidPath's form; "" is the root itself.
type Files interface {
	// ListFiles returns a folder's entries sorted by name, or the one entry of
	// a file: at most limit, those whose name sorts after the given one.
	ListFiles(ctx context.Context, path, after string, limit int) ([]view.File, error)
	// OpenFile returns a regular file's content and entry.
	OpenFile(ctx context.Context, path string) (io.ReadCloser, view.File, error)
	// PutFile replaces or makes a file, folders included, all or nothing.
	PutFile(ctx context.Context, user, path string, content io.Reader) (view.File, error)
	// RemoveFile removes a file, or a folder with recursive.
	RemoveFile(ctx context.Context, user, path string, recursive bool) error
	// MoveFile gives a file or folder another name, where nothing is.
	MoveFile(ctx context.Context, user, from, to string) (view.File, error)
	// Trash lists what was removed or overwritten, newest first: at most limit,
	// older than before when that is not empty.
	Trash(ctx context.Context, before string, limit int) (list []view.Trashed, more bool, err error)
	// PutBack brings something back from the trash, where it was when to is empty.
	PutBack(ctx context.Context, user, id, to string) (view.File, error)
	// AddTar unpacks an untrusted tar stream into workspace/{name} in a scratch
	// box and publishes it. origin is what the sender called it.
	AddTar(ctx context.Context, user, name, origin string, tar io.Reader) (view.Added, error)
	// AddURL fetches a repository through egress into workspace/{name}.
	AddURL(ctx context.Context, user string, r view.AddRequest) (view.Added, error)
}

// Commands are the user's own commands.
type Commands interface {
	// Exec runs a command in a terminal box on the live tree, checkpoints around
	// it, until it ends. When ctx ends everything in the box is killed, and the
	// exit says so. An error means that it did not start or its outcome is lost.
	Exec(ctx context.Context, r view.ExecRequest, io view.ExecIO) (view.Exit, error)
	// StopCommand ends one that runs, whoever started it.
	StopCommand(ctx context.Context, id string) error
}

// Desktop is what the desktop's origin serves.
type Desktop interface {
	// Provider is what the next prompt would use.
	Provider(ctx context.Context) (view.Provider, error)
	// Build returns the files of the kept build that is served first: the
	// newest verified one, else the base that came with the binary.
	// index.html is at its root.
	Build(ctx context.Context) (fs.FS, error)
	// Look says that somebody looks at the desktop until release is called; the
	// dev server runs only meanwhile. It returns at once.
	Look(ctx context.Context) (release func())
	// Live reaches the dev server in its box; 101 responses carry an
	// io.ReadWriteCloser as body. fault.Unavailable while it starts.
	Live(ctx context.Context) (http.RoundTripper, error)
	// Beat reports what the injected script saw of a loaded page.
	Beat(ctx context.Context, b view.Heartbeat) error
}

// System is what belongs to the control plane rather than to one computer.
type System interface {
	Secrets(ctx context.Context) ([]view.Secret, error)
	SetSecret(ctx context.Context, user, name, value string) error
	RemoveSecret(ctx context.Context, user, name string) error
	Models(ctx context.Context) ([]view.Model, error)
	// TestModel asks a model for a word; "" is the default. A model that fails
	// is no error: the outcome says so.
	TestModel(ctx context.Context, model string) (view.ModelTest, error)
	// Doctor looks at what the machine provides.
	Doctor(ctx context.Context) ([]view.Finding, error)
}
