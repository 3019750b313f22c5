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
	// Create makes a computer and waits until it is awake. One that is there already
	// is returned as it is.
	Create(ctx context.Context, cid contract.CID, name string) (view.Computer, error)
	// Fork makes one with the files and documents of another's checkpoint (empty: one
	// that is made of it first), and waits until it is awake. One that is there already is returned as it is.
	Fork(ctx context.Context, by contract.Actor, from, cid contract.CID, name, checkpoint string) (view.Computer, error)
	// Asleep describes a computer that is asleep, without waking it; false: it is not.
	Asleep(ctx context.Context, cid contract.CID) (view.Computer, bool, error)
	// Get returns one, awake, which it stays until ctx has ended: one that is asleep
	// is woken, and one that is waking is waited for, for a while. fault.NotFound when
	// there is none, fault.Unavailable while it is not awake yet, fault.Damaged and
	// others when it does not wake.
	Get(ctx context.Context, cid contract.CID) (Computer, error)
	// History returns a computer's history, also of one that does not wake and
	// is not damaged, and of one that is asleep, which stays so unless more than its
	// log is needed. It waits as Get does.
	History(ctx context.Context, cid contract.CID) (History, error)
	// Wake wakes a computer that is asleep, or tries again to wake one that did not
	// wake. It returns at once.
	Wake(ctx context.Context, cid contract.CID, r view.WakeRequest) error
	// Remove takes a computer out of sight, as it is; for some days it can be put back.
	Remove(ctx context.Context, cid contract.CID, by string) (view.Computer, error)
	// PutBack undoes that, and waits until the computer is awake.
	PutBack(ctx context.Context, cid contract.CID) (view.Computer, error)
	// Removed lists those that can be put back.
	Removed(ctx context.Context) ([]view.Computer, error)
	// Recover brings back what is damaged of a computer from what else knows it. It
	// returns at once; the others stay awake unless what all share is damaged.
	Recover(ctx context.Context, cid contract.CID) error
	// Export writes a tar archive of a computer's files and its events, also of
	// one that does not wake.
	Export(ctx context.Context, cid contract.CID, w io.Writer) error
}

// Computer is one awake computer: what answers the methods that package rpc
// declares, and what is bound by hand. Input has been validated for form; every
// method may be called from many goroutines, returns coded errors
// (internal/fault), ends with its context, and reads reflect every event that
// was acknowledged before the call.
type Computer interface {
	History
	Info(ctx context.Context) (view.Computer, error)
	// Frame is what the console shows around the desktop.
	Frame(ctx context.Context) (view.Frame, error)
	// Act appends a person's intention and sets going what follows from it. The
	// same id with the same content again answers as the first time.
	Act(ctx context.Context, a view.Action) (view.Acted, error)
	// Run returns one run with its tasks.
	Run(ctx context.Context, id string) (view.Run, error)
	// ListFiles returns a folder's entries sorted by name, or the one entry of
	// a file: at most limit, those whose name sorts after the given one.
	ListFiles(ctx context.Context, path, after string, limit int) ([]view.File, error)

	Streams
	Desktop
}

// History is what can be asked also of a computer that does not wake, or is asleep.
type History interface {
	// Methods are what answers the declared methods.
	Methods() rpc.Table
	// Appended counts what was appended in a user's name since then.
	Appended(ctx context.Context, since time.Time) (events int, bytes int64, err error)
	// Events returns a page of the log, ascending; its Next goes on.
	Events(ctx context.Context, q view.EventQuery) (view.EventPage, error)
}

// Streams are what goes on, or is bytes. Paths are relative to the workspace's
// root and in contract.ValidPath's form.
type Streams interface {
	// Follow yields every event with sequence > after, without gaps, until ctx
	// ends or an error was yielded.
	Follow(ctx context.Context, after uint64) iter.Seq2[contract.Event, error]
	// Last is the sequence of the newest event.
	Last() uint64
	// OpenFile returns a regular file's content and entry, with the version of just
	// that content, unless it is written all the time.
	OpenFile(ctx context.Context, path string) (io.ReadCloser, view.File, error)
	// ReadFile returns the content from an offset of a file that OpenFile returned
	// and that is still as it was.
	ReadFile(ctx context.Context, f view.File, offset int64) (io.ReadCloser, error)
	// PutFile replaces or makes a file, folders included, all or nothing.
	PutFile(ctx context.Context, by contract.Actor, put view.Put, content io.Reader) (view.File, error)
	// AddTar unpacks an untrusted tar stream into workspace/{name} in a scratch
	// box and publishes it. origin is what the sender called it.
	AddTar(ctx context.Context, by contract.Actor, name, origin string, tar io.Reader) (view.Added, error)
	// Repository returns where the repository lies that git calls by a name;
	// fault.NotFound when there is none.
	Repository(ctx context.Context, name string) (string, error)
	// Git answers one request of git's. Nothing is written to out before it is
	// known that there is an answer.
	Git(ctx context.Context, call view.GitCall, in io.Reader, out io.Writer) error
	// Exec runs a command in a terminal box on the live tree, checkpoints around
	// it, until it ends. When ctx ends everything in the box is killed, and the
	// exit says so. An error means that it did not start or its outcome is lost.
	Exec(ctx context.Context, r view.ExecRequest, io view.ExecIO) (view.Exit, error)
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
	SetSecret(ctx context.Context, by contract.Actor, name, value string) error
	RemoveSecret(ctx context.Context, by contract.Actor, name string) error
	Models(ctx context.Context) ([]view.Model, error)
	// TestModel asks a model for a word; "" is the default. A model that fails
	// is no error: the outcome says so.
	TestModel(ctx context.Context, model string) (view.ModelTest, error)
	// Doctor looks at what the machine provides.
	Doctor(ctx context.Context) ([]view.Finding, error)
}
