package view

import (
	"io"
	"time"

	"choir.dev/choiros/contract"
)

// Checkpoint is a commit of the workspace.
type Checkpoint struct {
	ID       string                      `json:"id"` // the commit
	Parent   string                      `json:"parent,omitempty"`
	Tree     string                      `json:"tree"`
	Kind     contract.CheckpointKind     `json:"kind"`
	Message  string                      `json:"message"`
	Verified contract.VerificationStatus `json:"verified"`
	Files    int                         `json:"files"`
	Skipped  []string                    `json:"skipped,omitempty"` // the first of what could not be taken, and why
	Left     int                         `json:"left,omitempty"`    // how many files that is altogether
	Ignored  []string                    `json:"ignored,omitempty"` // the first of what .gitignore files keep out
	Outside  int                         `json:"outside,omitempty"` // how many files and folders that is altogether
	Seq      uint64                      `json:"seq"`               // last sequence projected before it
	Sequence uint64                      `json:"sequence"`          // of its event; pages go by it
	Time     time.Time                   `json:"time"`
	Author   contract.ActorKind          `json:"author"`
	Actor    contract.ActorName          `json:"actor,omitempty"` // who asked for it, where somebody did and it was written down
	User     string                      `json:"user,omitempty"`  // the account
	Run      string                      `json:"run,omitempty"`
	Task     string                      `json:"task,omitempty"`
}

// Checkpointed answers a request for a checkpoint. Created is false when
// nothing had changed; ID is then the newest there is.
type Checkpointed struct {
	ID       string `json:"id"`
	Sequence uint64 `json:"sequence"`
	Created  bool   `json:"created"`
	Unkept   Unkept `json:"unkept"`
}

// Unkept is what no checkpoint holds as it is.
type Unkept struct {
	Files   int          `json:"files"`   // how many could not be taken
	Ignored int          `json:"ignored"` // how many files and folders .gitignore files keep out
	Paths   []UnkeptPath `json:"paths"`   // the first of both
}

// UnkeptPath is a path that no checkpoint holds, and why. Reason goes on where
// the path ends: "is a socket".
type UnkeptPath struct {
	Path    string `json:"path"`
	Reason  string `json:"reason"`
	Ignored bool   `json:"ignored,omitempty"`
}

// DiffRequest compares two checkpoints. From "" is the parent of To; To "" is
// the live tree. Both may be unambiguous prefixes of at least 7 digits. Path
// narrows to a file or folder.
type DiffRequest struct {
	From string `query:"from" maxLength:"64" doc:"empty: the parent of to"`
	To   string `query:"to" maxLength:"64" doc:"empty: the live tree"`
	Path string `query:"path" maxLength:"4096" doc:"only this file or folder"`
}

// Diff is what differs. Diff is unified, at most 512 KiB, cut when Truncated.
type Diff struct {
	From      string            `json:"from"`
	To        string            `json:"to"`
	Changes   []contract.Change `json:"changes"`
	Diff      string            `json:"diff"`
	Truncated bool              `json:"truncated"`
}

// RestoreRequest goes back in time by a new commit. Exactly one of To, Run and Undo is set:
// To goes to a checkpoint, or to an entry of the trash; Run to the state without what a run
// changed; Undo to the state without the last thing that was done, whatever it was (an undo
// can be undone the same way). Paths are files or folders; none means everything. With one
// path and none of the three, what was there last comes back from the trash.
type RestoreRequest struct {
	To     string         `json:"to,omitempty" maxLength:"64"`
	Run    string         `json:"run,omitempty" maxLength:"36"`
	Undo   bool           `json:"undo,omitempty"`
	Paths  []string       `json:"paths,omitempty" maxItems:"200"`
	DryRun bool           `json:"dry_run,omitempty"`
	By     contract.Actor `json:"-"`
	Act    uint64         `json:"-"` // of an undo: the sequence of the act that it has to be of; 0: the last one, whichever it is
	// Unasked is set by the console when nobody was there to be asked. The restore is then
	// done only if DesktopStatus.Auto still allows it.
	Unasked bool `json:"-"`
}

// Restored is what a restore did, or with DryRun what it would change.
type Restored struct {
	To         string            `json:"to"`
	DryRun     bool              `json:"dry_run"`
	Changes    []contract.Change `json:"changes"`
	Kept       []Kept            `json:"kept"`                 // what stays as it is all the same
	Unkept     Unkept            `json:"unkept"`               // what no checkpoint has, and so stays as it is
	Safety     string            `json:"safety,omitempty"`     // checkpoint of everything as it was
	Checkpoint string            `json:"checkpoint,omitempty"` // the new commit
	Sequence   uint64            `json:"sequence,omitempty"`
	Truncated  bool              `json:"truncated,omitempty"` // whether changes is cut
	Undone     *Undone           `json:"undone,omitempty"`    // of an undo
	Facts      []Fact            `json:"facts,omitempty"`     // which an undo has kept again or forgotten
}

// Undone is what an undo undoes: the last thing that was done.
type Undone struct {
	What     UndoneKind `json:"what"`
	Sequence uint64     `json:"sequence"`        // of its event
	Path     string     `json:"path,omitempty"`  // of the file or folder
	Run      string     `json:"run,omitempty"`   // of a run
	Title    string     `json:"title,omitempty"` // of a run what was asked for, of a command its line, of a document its title, of a fact its words
}

// UndoneKind says what was undone.
type UndoneKind string

// What can be undone.
const (
	UndoneRestore  UndoneKind = "restore"
	UndoneRun      UndoneKind = "run"
	UndoneCommand  UndoneKind = "command"
	UndonePut      UndoneKind = "put"
	UndoneRemoval  UndoneKind = "removal"
	UndoneMove     UndoneKind = "move"
	UndoneBack     UndoneKind = "back" // from the trash
	UndoneAdd      UndoneKind = "add"
	UndonePush     UndoneKind = "push" // with git
	UndoneRevision UndoneKind = "revision"
	UndoneRemember UndoneKind = "remember" // a fact, or that it was kept again
	UndoneForget   UndoneKind = "forget"
)

// Kept is a path that a restore leaves as it is: what is there is in no
// checkpoint, or was written in the very moment.
type Kept struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

// FileKind says what a directory entry is.
type FileKind string

// What a directory entry is.
const (
	FileRegular FileKind = "file"
	FileDir     FileKind = "dir"
	FileSymlink FileKind = "symlink"
	FileOther   FileKind = "other"
)

// File is one entry of the workspace.
type File struct {
	ID       string    `json:"id"` // its path, relative to the workspace's root
	Kind     FileKind  `json:"kind"`
	Size     int64     `json:"size"`
	Mode     string    `json:"mode"` // such as 0644
	Modified time.Time `json:"modified"`
	Target   string    `json:"target,omitempty"`  // of a symlink
	Version  string    `json:"version,omitempty"` // names what a file holds, of one that was put; over HTTP its ETag
	// State identifies the state in which a file was opened, whatever it holds.
	State string `json:"-"`
	// Unkept says why no checkpoint holds the entry, such as "is a socket"; Beneath counts
	// such paths in a folder.
	Unkept  string `json:"unkept,omitempty"`
	Beneath int    `json:"unkept_beneath,omitempty"`
}

// The modes that a file can have.
const (
	ModeFile       = "0644"
	ModeExecutable = "0755"
)

// Put says where a file goes. Mode is one of the two modes, or empty for that of the file
// that it replaces. If, unless it is empty, is the version that it may replace, AnyVersion
// or NoVersion.
type Put struct{ Path, Mode, If string }

// Conditions of a put: it replaces something, whatever it is, or it replaces nothing.
const (
	AnyVersion = "any"
	NoVersion  = "none"
)

// MoveRequest renames a file or folder; nothing may have the new name yet.
type MoveRequest struct {
	From string `json:"from" minLength:"1" maxLength:"4096"`
	To   string `json:"to" minLength:"1" maxLength:"4096"`
}

// PutBackRequest brings something back from the trash.
type PutBackRequest struct {
	To string `json:"to,omitempty" maxLength:"4096" doc:"empty: where it was"`
}

// Trashed is something in the trash, where it stays for a week.
type Trashed struct {
	ID   string    `json:"id"`
	Path string    `json:"path"` // where it was
	Time time.Time `json:"time"`
	By   string    `json:"by"`             // what put it there: remove, write (something else was written in its place), merge or heal
	User string    `json:"user,omitempty"` // whose hand
	Kind FileKind  `json:"kind"`
	Size int64     `json:"size"`
}

// AddRequest brings something into workspace/: a repository or file by URL
// through egress.
type AddRequest struct {
	URL  string `json:"url" minLength:"1" maxLength:"4096"`
	Name string `json:"name,omitempty" maxLength:"200" doc:"folder under workspace/; empty: from the URL"`
}

// Added is what an AddRequest brought in.
type Added struct {
	ID       string `json:"id"` // its path
	Origin   string `json:"origin"`
	Remote   string `json:"remote,omitempty"`
	Commit   string `json:"commit,omitempty"`
	Files    int    `json:"files"`
	Bytes    int64  `json:"bytes"`
	Skipped  int    `json:"skipped"` // not brought in at all, such as sockets
	Unkept   Unkept `json:"unkept"`  // the skipped ones, and what was brought in and is in no checkpoint
	Sequence uint64 `json:"sequence"`
}

// ExecRequest is the user's own command, run in a terminal box on the live
// tree with checkpoints around it. ID names the command in the log.
type ExecRequest struct {
	ID    string   `json:"id,omitempty" maxLength:"36"`
	Argv  []string `json:"argv" minItems:"1" doc:"as many and as long as the kernel takes"`
	Cwd   string   `json:"cwd,omitempty" maxLength:"4096" doc:"relative to the workspace's root"`
	Stdin bool     `json:"stdin,omitempty" doc:"whether the body goes on with the command's standard input"`
	// Terminal, when set, gives the command a terminal, whose output comes as stdout.
	Terminal *Terminal      `json:"terminal,omitempty"`
	By       contract.Actor `json:"-"`
}

// Terminal describes a command's terminal, sizes in characters.
type Terminal struct {
	Rows int    `json:"rows" minimum:"1" maximum:"10000"`
	Cols int    `json:"cols" minimum:"1" maximum:"10000"`
	Type string `json:"type,omitempty" maxLength:"64" doc:"the value of TERM"`
}

// CommandSignal is sent to a command that runs: a signal, its terminal's new size, or both.
type CommandSignal struct {
	Signal string `json:"signal,omitempty" enum:"INT,TERM,QUIT,HUP,USR1,USR2,KILL,STOP,CONT,TSTP" doc:"to the command's process group"`
	Rows   int    `json:"rows,omitempty" minimum:"0" maximum:"10000"`
	Cols   int    `json:"cols,omitempty" minimum:"0" maximum:"10000"`
}

// ExecIO is what a command is connected to. Started, when not nil, is called
// once, after command.started is on disk and before any output.
type ExecIO struct {
	Stdin          io.Reader // nil: empty
	Stdout, Stderr io.Writer
	Started        func(command string, sequence uint64)
}

// Exit is how a command ended. Code is 128+n after signal n.
type Exit struct {
	Command    string `json:"command"`
	Code       int    `json:"exit_code"`
	DurationMS int64  `json:"duration_ms"`
	Reason     string `json:"reason,omitempty"` // killed, timeout, disk, memory; why it did not start, with code 126 or 127
	Sequence   uint64 `json:"sequence"`         // of command.finished
	Unkept     Unkept `json:"unkept"`           // what it left behind that no checkpoint holds
	// NoCheckpoint says why a checkpoint before or after it could not be made.
	NoCheckpoint string `json:"no_checkpoint,omitempty"`
}

// Secret is a stored secret, without its value.
type Secret struct {
	ID      string    `json:"id"` // its name
	Source  string    `json:"source,omitempty"`
	Updated time.Time `json:"updated,omitzero"`
}

// Model is one model that can be asked for.
type Model struct {
	ID        string   `json:"id"` // provider/model
	Provider  string   `json:"provider"`
	Aliases   []string `json:"aliases,omitempty"`
	Default   bool     `json:"default"`
	Available bool     `json:"available"` // whether there is a key or a server for it
	Key       string   `json:"key,omitempty" doc:"the name of its provider's key, under which a secret is stored"`
	Note      string   `json:"note,omitempty"`
	PriceIn   float64  `json:"price_in,omitempty"`  // USD per million tokens
	PriceOut  float64  `json:"price_out,omitempty"` // USD per million tokens
}

// ModelTest is the outcome of a minimal request to a model.
type ModelTest struct {
	ID         string         `json:"id"`
	OK         bool           `json:"ok"`
	DurationMS int64          `json:"duration_ms"`
	Usage      contract.Usage `json:"usage"`
	Error      string         `json:"error,omitempty"`
	Hint       string         `json:"hint,omitempty"`
}

// Rebuilt is the outcome of replaying a log into a new state file. With Check the new file
// is only compared and then dropped; otherwise it has replaced the old one.
type Rebuilt struct {
	Check       bool     `json:"check"`
	Equal       bool     `json:"equal"` // the file in use held exactly what the log says
	Sequence    uint64   `json:"sequence"`
	Differences []string `json:"differences,omitempty"` // the first few, in words
	DurationMS  int64    `json:"duration_ms"`
}

// Finding is the result of one of doctor's checks.
type Finding struct {
	ID     string `json:"id"`     // such as bubblewrap
	Status string `json:"status"` // ok, warn, fail
	Detail string `json:"detail"`
	Hint   string `json:"hint,omitempty"`
}

// Health says that the control plane answers.
type Health struct {
	Status  string `json:"status"` // ok
	Version string `json:"version"`
}

// Ticket lets the console's page into a desktop: it is posted, as a form field
// named ticket, to Action, which sets the desktop's cookie and shows its page.
type Ticket struct {
	Action string `json:"action"`
	Ticket string `json:"ticket"`
}

// GitCall is one request of git's, for a repository of a computer.
type GitCall struct {
	Repository string // as Computer.Repository returned it
	Push       bool   // whether it is receive-pack, and not upload-pack
	Advertise  bool   // whether it only asks for the list of refs
	Protocol   int    // the version that the client speaks: 0, 1 or 2
	By         contract.Actor
}

// Service is git's name of the requested service.
func (c GitCall) Service() string {
	if c.Push {
		return "git-receive-pack"
	}
	return "git-upload-pack"
}
