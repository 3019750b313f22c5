package control

import (
	"context"
	"io"
	"io/fs"
	"iter"
	"net/http"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/view"
)

// Computers finds the computers of this control plane.
type Computers interface {
	// List returns every computer, oldest first.
	List(ctx context.Context) ([]view.Computer, error)
	// IDs are those of the computers that List lists.
	IDs() []contract.CID
	// Create makes a computer and waits until it is awake. One that is there already is returned as it
	// is.
	Create(ctx context.Context, cid contract.CID, name string) (view.Computer, error)
	// Fork makes a computer with the files and documents of another's checkpoint and waits until it is
	// awake. If checkpoint is empty, one is made first. A computer that is there already is returned as
	// it is.
	Fork(ctx context.Context, by contract.Actor, from, cid contract.CID, name, checkpoint string) (view.Computer, error)
	// Asleep describes a computer that is asleep, without waking it; false: it is not.
	Asleep(ctx context.Context, cid contract.CID) (view.Computer, bool, error)
	// Get returns a computer that is awake, and keeps it awake until ctx has ended. It wakes one that is
	// asleep, and waits for a while for one that is waking. Errors: fault.NotFound when there is none,
	// fault.Unavailable while it is not awake yet, fault.Damaged and others when it can't be woken.
	Get(ctx context.Context, cid contract.CID) (Computer, error)
	// History returns a computer's history. The computer may be asleep, and stays asleep unless more than
	// its log is needed; it may also be one that can't be woken, if it is not damaged. History waits as
	// Get does.
	History(ctx context.Context, cid contract.CID) (History, error)
	// Health says how those of these computers are that there are, oldest first. It wakes none and reads
	// no log.
	Health(ctx context.Context, cids []contract.CID) ([]view.ComputerHealth, error)
	// Waiting lists what of those of these computers that there are waits for a person, oldest computer first. It wakes none;
	// of one that is neither awake nor asleep nothing is known.
	Waiting(ctx context.Context, cids []contract.CID) ([]view.Waiting, error)
	// Wake wakes a computer that is asleep, or tries again to wake one that did not wake; of one that is
	// awake, parts that were given up are started again. It returns at once.
	Wake(ctx context.Context, cid contract.CID, r view.WakeRequest) error
	// Remove hides a computer, and leaves its data as they are; for some days PutBack can undo it.
	Remove(ctx context.Context, cid contract.CID, by string) (view.Computer, error)
	// PutBack undoes Remove, and waits until the computer is awake.
	PutBack(ctx context.Context, cid contract.CID) (view.Computer, error)
	// Removed lists the computers that can be put back.
	Removed(ctx context.Context) ([]view.Computer, error)
	// Recover restores what is damaged of a computer from the other places that hold it. It returns at
	// once; the other computers stay awake unless the damage is in what all share.
	Recover(ctx context.Context, cid contract.CID) error
	// Export writes a tar archive of a computer's files and its events. It works also for a computer that
	// can't be woken.
	Export(ctx context.Context, cid contract.CID, w io.Writer) error
}

// Computer is one awake computer. It answers the methods that package rpc declares, and has methods for
// the addresses that this package routes itself. Callers have validated the form of their input. Every
// method may be called from many goroutines, returns coded errors (internal/fault) and ends with its
// context; reads reflect every event that was acknowledged before the call.
type Computer interface {
	History
	Info(ctx context.Context) (view.Computer, error)
	// Frame is what the console shows around the desktop.
	Frame(ctx context.Context) (view.Frame, error)
	// Act appends what a person asks for as an event and starts what follows from it. A repeated call
	// with the same id and content returns the first call's answer.
	Act(ctx context.Context, a view.Action) (view.Acted, error)
	// Run returns one run with its tasks.
	Run(ctx context.Context, id string) (view.Run, error)
	// ListFiles returns at most limit entries of a folder, sorted by name, from the first name after the
	// given one on; for a file it returns the file's own entry.
	ListFiles(ctx context.Context, path, after string, limit int) ([]view.File, error)

	Streams
	Desktop
}

// History is what can be asked also of a computer that is asleep or can't be woken.
type History interface {
	// Methods returns the handlers of the declared methods.
	Methods() rpc.Table
	// Appended counts the events that were appended in a user's name since a time.
	Appended(ctx context.Context, since time.Time) (events int, bytes int64, err error)
	// Events returns a page of the log in ascending order; the page's Next is where the following one
	// begins.
	Events(ctx context.Context, q view.EventQuery) (view.EventPage, error)
}

// Streams are the methods that stream events or bytes. Paths are relative to the workspace's root and in
// contract.ValidPath's form.
type Streams interface {
	// Follow yields every event with sequence > after, without gaps, until ctx ends or an error was
	// yielded.
	Follow(ctx context.Context, after uint64) iter.Seq2[contract.Event, error]
	// Last is the sequence of the newest event.
	Last() uint64
	// OpenFile returns a regular file's content and entry. The entry's version is that of exactly this
	// content; it is empty if the file keeps being written.
	OpenFile(ctx context.Context, path string) (io.ReadCloser, view.File, error)
	// ReadFile returns the content, from an offset on, of a file that OpenFile returned and that has not
	// changed since.
	ReadFile(ctx context.Context, f view.File, offset int64) (io.ReadCloser, error)
	// PutFile replaces or makes a file, and the folders above it, atomically.
	PutFile(ctx context.Context, by contract.Actor, put view.Put, content io.Reader) (view.File, error)
	// AddTar unpacks an untrusted tar stream into workspace/{name} in a scratch box and publishes the
	// result. origin is the sender's name for it.
	AddTar(ctx context.Context, by contract.Actor, name, origin string, tar io.Reader) (view.Added, error)
	// Repository returns the path of the repository that git addresses by a name; fault.NotFound when
	// there is none.
	Repository(ctx context.Context, name string) (string, error)
	// Git answers one request of the git program. Nothing is written to out before it is certain that
	// there is an answer, so that errors can still be reported.
	Git(ctx context.Context, call view.GitCall, in io.Reader, out io.Writer) error
	// Exec runs a command in a terminal box on the live tree until it ends, with a checkpoint before and
	// after it. When ctx ends, every process in the box is killed, and the exit says so. An error means
	// that the command did not start, or that its outcome is lost.
	Exec(ctx context.Context, r view.ExecRequest, io view.ExecIO) (view.Exit, error)
}

// Desktop is what a desktop's origin is served from.
type Desktop interface {
	// Provider returns the model provider that the next prompt would use.
	Provider(ctx context.Context) (view.Provider, error)
	// Build returns the files of the desktop's build that is served: the newest verified one, or the base
	// build that is part of the binary if there is none. index.html is at its root.
	Build(ctx context.Context) (fs.FS, error)
	// AddViewer marks the desktop as viewed until release is called; the dev server runs only while somebody
	// views it. It returns at once.
	AddViewer(ctx context.Context) (release func())
	// Live returns a transport to the dev server in its box. The body of a 101 response is an
	// io.ReadWriteCloser. The error is fault.Unavailable while the server starts.
	Live(ctx context.Context) (http.RoundTripper, error)
	// Heartbeat passes on what the script that is injected into a page observed.
	Heartbeat(ctx context.Context, b view.Heartbeat) error
}

// System is what belongs to the control plane rather than to one computer.
type System interface {
	Secrets(ctx context.Context) ([]view.Secret, error)
	SetSecret(ctx context.Context, by contract.Actor, name, value string) error
	RemoveSecret(ctx context.Context, by contract.Actor, name string) error
	Models(ctx context.Context) ([]view.Model, error)
	// TestModel sends a model a short prompt; "" is the default model. A model that fails is no error:
	// the outcome describes the failure.
	TestModel(ctx context.Context, model string) (view.ModelTest, error)
	// Machine says how the machine's own parts are. It returns at once.
	Machine(ctx context.Context) []view.Part
	// Doctor checks what the machine provides.
	Doctor(ctx context.Context) ([]view.Finding, error)
}
