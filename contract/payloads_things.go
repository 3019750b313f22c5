package contract

// Events about what a computer has: its boxes, files, checkpoints, documents, windows,
// network and money.

// CheckpointKind says why a checkpoint was made.
type CheckpointKind string

// Why a checkpoint was made.
const (
	CheckpointInitial CheckpointKind = "initial"
	CheckpointAuto    CheckpointKind = "auto"
	CheckpointManual  CheckpointKind = "manual"
	CheckpointBefore  CheckpointKind = "before" // before a task, command or deploy
	CheckpointTask    CheckpointKind = "task"   // holds a task's published work
	CheckpointPush    CheckpointKind = "push"   // holds what somebody pushed into a repository
	CheckpointAfter   CheckpointKind = "after"  // after the user's own command
	CheckpointSafety  CheckpointKind = "safety" // everything as it was, before a restore
	CheckpointRestore CheckpointKind = "restore"
)

type (
	// BoxOpened says that a box runs.
	BoxOpened struct {
		Box  string  `json:"box" v:"required,max=128"`
		Kind BoxKind `json:"kind" v:"required"`
	}
	// BoxClosed says that a box and everything in it ended. Reason is empty for
	// an orderly end, else what ended it: killed, crashed, disk, memory, timeout.
	BoxClosed struct {
		Box        string  `json:"box" v:"required,max=128"`
		Kind       BoxKind `json:"kind" v:"required"`
		Reason     string  `json:"reason,omitempty" v:"max=64"`
		Detail     string  `json:"detail,omitempty" v:"max=8192"`
		DurationMS int64   `json:"duration_ms" v:"min=0"`
	}
	// FileWritten is a file that was made or changed, coalesced per path.
	FileWritten struct {
		Path   string  `json:"path" v:"required,path"`
		Raw    string  `json:"path_base64,omitempty" v:"max=5464"` // set when it is not UTF-8
		Size   int64   `json:"size" v:"min=0"`
		SHA256 BlobRef `json:"sha256,omitempty" blob:"elsewhere"`
		// How to undo it, which events of earlier versions don't say: how the file came to
		// be, which entry of the trash has what it replaced, if anything, and where it was.
		Operation FileOperation `json:"deed,omitempty"`
		Trash     string        `json:"trash,omitempty" v:"max=128"`
		From      string        `json:"from,omitempty" v:"path"`
	}
	// FileRemoved is a file that was removed; Trash is the entry of the trash that has it.
	FileRemoved struct {
		Path  string `json:"path" v:"required,path"`
		Raw   string `json:"path_base64,omitempty" v:"max=5464"` // set when it is not UTF-8
		Trash string `json:"trash,omitempty" v:"max=128"`
	}
	// RepositoryAdded says that choir add brought something into workspace/.
	RepositoryAdded struct {
		Path    string `json:"path" v:"required,path"`        // in the workspace
		Origin  string `json:"origin" v:"required,max=4096"`  // what was added, without credentials
		Remote  string `json:"remote,omitempty" v:"max=4096"` // URL to fetch from, recorded on the host
		Commit  string `json:"commit,omitempty" v:"commit"`   // its HEAD
		Files   int    `json:"files" v:"min=0"`               // how many files came
		Bytes   int64  `json:"bytes" v:"min=0"`               // how large they are together
		Skipped int    `json:"skipped,omitempty" v:"min=0"`   // how many were left out, such as sockets
	}
	// CheckpointCreated is a commit of the workspace, on disk before this event.
	CheckpointCreated struct {
		Commit   string             `json:"commit" v:"required,commit"`
		Parent   string             `json:"parent,omitempty" v:"commit"`
		Tree     string             `json:"tree" v:"required,commit"`
		Kind     CheckpointKind     `json:"kind" v:"required"`
		Message  string             `json:"message" v:"required,max=4096"`
		Seq      uint64             `json:"seq" v:"max=2147483647"` // last sequence projected and mirrored before it
		Verified VerificationStatus `json:"verified" v:"required"`
		Files    int                `json:"files" v:"min=0"`                                    // paths changed against Parent
		Skipped  []string           `json:"skipped,omitempty" v:"items=200;required,max=12288"` // the first of what could not be taken, and why
		Left     int                `json:"left,omitempty" v:"min=0"`                           // how many files that is altogether
		Ignored  []string           `json:"ignored,omitempty" v:"items=40;required,max=12288"`  // the first of what .gitignore files keep out
		Outside  int                `json:"outside,omitempty" v:"min=0"`                        // how many files and folders that is altogether
	}
	// CheckpointRestored says that the workspace, or paths of it, is as in To again.
	CheckpointRestored struct {
		To         string   `json:"to" v:"required,commit"`
		Safety     string   `json:"safety" v:"required,commit"`
		Checkpoint string   `json:"checkpoint" v:"required,commit"`
		Paths      []string `json:"paths,omitempty" v:"items=200;required,max=4096"` // empty: everything
		Undo       bool     `json:"undo,omitempty"`
	}
	// PublishStarted says that the merged tree of a task is committed under
	// refs/choir/publish/ and will be applied; recovery rolls it forward.
	PublishStarted struct {
		Publish string `json:"publish" v:"required,max=128"` // id
		Commit  string `json:"commit" v:"required,commit"`
		Base    string `json:"base" v:"required,commit"`
		Live    bool   `json:"live,omitempty"` // once per tool call, inverted if the task fails
		Paths   int    `json:"paths" v:"min=0"`
	}
	// PublishFinished says that every path of a publish is in the live tree.
	PublishFinished struct {
		Publish   string   `json:"publish" v:"required,max=128"`
		Commit    string   `json:"commit" v:"required,commit"`
		Conflicts []string `json:"conflicts,omitempty" v:"items=200;required,max=12288"` // paths kept as the user had them
		Inverted  bool     `json:"inverted,omitempty"`
	}
	// DocumentRevised is one revision of a living document, whole. Revision 1 creates it.
	DocumentRevised struct {
		Document string  `json:"document" v:"required,id"`
		Title    string  `json:"title" v:"required,max=300"`
		Path     string  `json:"path" v:"required,path"` // where it is mirrored, under artifacts/
		Revision int     `json:"revision" v:"min=1,max=2147483647"`
		Base     int     `json:"base" v:"min=0,max=2147483647"` // the revision it was made from
		Author   string  `json:"author" v:"required,max=200"`
		SHA256   BlobRef `json:"sha256" v:"required" blob:"elsewhere"`
		Body     string  `json:"body" v:"max=4194304"` // Markdown
	}
	// DocumentProposed is a change to a living document that was not made: it
	// touches text that somebody else wrote since its base. It holds the whole
	// text as its author wanted it; a user accepts or dismisses it.
	DocumentProposed struct {
		Proposal string  `json:"proposal" v:"required,id"`
		Document string  `json:"document" v:"required,id"`
		Base     int     `json:"base" v:"min=0,max=2147483647"` // the revision it was made from; 0: none of them
		Author   string  `json:"author" v:"required,max=200"`
		SHA256   BlobRef `json:"sha256" v:"required" blob:"elsewhere"`
		Body     string  `json:"body" v:"max=4194304"` // Markdown
	}
	// ProposalResolved ends a proposal. Revision is the one that holds an accepted
	// proposal's text; Successor is the proposal that replaced a superseded one.
	ProposalResolved struct {
		Proposal   string     `json:"proposal" v:"required,id"`
		Document   string     `json:"document" v:"required,id"`
		Resolution Resolution `json:"resolution" v:"required"`
		By         string     `json:"by" v:"required,max=200"`
		Revision   int        `json:"revision,omitempty" v:"min=0,max=2147483647"`
		Successor  string     `json:"successor,omitempty" v:"id"`
	}
	// ThemeChanged delivers the theme file; Theme is the file's JSON.
	ThemeChanged struct {
		Theme  Theme   `json:"theme"`
		SHA256 BlobRef `json:"sha256" blob:"elsewhere"`
	}
	// ThemeRefused says why a theme file was not applied; the last good one stays.
	ThemeRefused struct {
		Field  string `json:"field" v:"required,max=200"`
		Reason string `json:"reason" v:"required,max=2000"`
	}
	// EgressDecided is one decision of the network policy (types egress.allowed
	// and egress.denied).
	EgressDecided struct {
		Box     string  `json:"box" v:"required,max=128"`
		Kind    BoxKind `json:"kind" v:"required"`
		Host    string  `json:"host" v:"required,max=1024"`
		Port    int     `json:"port" v:"min=0,max=65535"`
		Address string  `json:"address,omitempty" v:"max=64"`
		Rule    string  `json:"rule,omitempty" v:"max=512"`
		Reason  string  `json:"reason,omitempty" v:"max=512"`
	}
	// UsageMetered is what one model call consumed, estimated when Estimated.
	UsageMetered struct {
		Call      string  `json:"call" v:"required,max=128"`
		Role      string  `json:"role" v:"required,max=64"`
		Provider  string  `json:"provider" v:"required,max=100"`
		Model     string  `json:"model" v:"required,max=200"`
		Usage     Usage   `json:"usage"`
		Outcome   string  `json:"outcome" v:"required,max=100"` // ok, or the error's code
		Retries   int     `json:"retries" v:"min=0,max=1000"`
		Estimated bool    `json:"estimated,omitempty"`
		PriceIn   float64 `json:"price_in,omitempty" v:"min=0,max=1000000"`  // USD per million tokens
		PriceOut  float64 `json:"price_out,omitempty" v:"min=0,max=1000000"` // USD per million tokens
	}
	// DesktopBuilt says that a build of choiros/ is kept and can be served.
	DesktopBuilt struct {
		Commit     string `json:"commit" v:"required,commit"`
		Tree       string `json:"tree" v:"required,commit"` // git tree of choiros/
		Files      int    `json:"files" v:"min=0"`
		Bytes      int64  `json:"bytes" v:"min=0"`
		DurationMS int64  `json:"duration_ms" v:"min=0"`
	}
	// DesktopBroke says that the page is blank or throwing.
	DesktopBroke struct {
		Reason string `json:"reason" v:"required,max=200"`
		Detail string `json:"detail,omitempty" v:"max=8192"`
	}
	// WindowOpened puts a window on the desktop.
	WindowOpened struct {
		Window string            `json:"window" v:"required,max=128"`
		App    string            `json:"app" v:"required,max=100"`
		Title  string            `json:"title" v:"max=300"`
		Frame  Frame             `json:"frame"`
		State  WindowState       `json:"state" v:"required"`
		Props  map[string]string `json:"props,omitempty" v:"items=50"`
	}
	// WindowMoved changes a window's frame or state.
	WindowMoved struct {
		Window string      `json:"window" v:"required,max=128"`
		Frame  Frame       `json:"frame"`
		State  WindowState `json:"state" v:"required"`
		Z      int         `json:"z" v:"min=-1000000000,max=1000000000"`
	}
	// WindowFocused raises a window.
	WindowFocused struct {
		Window string `json:"window" v:"required,max=128"`
		Z      int    `json:"z" v:"min=-1000000000,max=1000000000"`
	}
	// WindowClosed removes a window.
	WindowClosed struct {
		Window string `json:"window" v:"required,max=128"`
	}
	// Frame is a window's place in CSS pixels.
	Frame struct {
		X int `json:"x" v:"min=-20000,max=20000"`
		Y int `json:"y" v:"min=-20000,max=20000"`
		W int `json:"w" v:"min=-20000,max=20000"`
		H int `json:"h" v:"min=-20000,max=20000"`
	}
	// SecretSet says that a secret was stored; its value is nowhere in the log.
	SecretSet struct {
		Name string `json:"name" v:"required,max=100"`
	}
	// SecretRemoved says that a secret is gone.
	SecretRemoved struct {
		Name string `json:"name" v:"required,max=100"`
	}
)

// FileOperation is how somebody made a file, or changed it.
type FileOperation string

// How files are made.
const (
	FilePut   FileOperation = "put"
	FileMoved FileOperation = "moved"
	FileBack  FileOperation = "back" // from the trash
)

// Resolution is how a proposal ended.
type Resolution string

// How a proposal ended.
const (
	ProposalAccepted   Resolution = "accepted"   // by a user; its text is in the document
	ProposalDismissed  Resolution = "dismissed"  // by a user
	ProposalSuperseded Resolution = "superseded" // a newer one took its place
)

// WindowState says how a window is shown.
type WindowState string

// How a window is shown.
const (
	WindowNormal    WindowState = "normal"
	WindowMinimised WindowState = "minimised"
	WindowMaximised WindowState = "maximised"
)

// Validate implements Payload.
func (p BoxOpened) Validate() error { return check(p) }

// Validate implements Payload.
func (p BoxClosed) Validate() error { return check(p) }

// Validate implements Payload.
func (p FileWritten) Validate() error { return check(p) }

// Validate implements Payload.
func (p FileRemoved) Validate() error { return check(p) }

// Validate implements Payload.
func (p RepositoryAdded) Validate() error { return check(p) }

// Validate implements Payload.
func (p CheckpointCreated) Validate() error { return check(p) }

// Validate implements Payload.
func (p CheckpointRestored) Validate() error { return check(p) }

// Validate implements Payload.
func (p PublishStarted) Validate() error { return check(p) }

// Validate implements Payload.
func (p PublishFinished) Validate() error { return check(p) }

// Validate implements Payload.
func (p DocumentRevised) Validate() error { return check(p) }

// Validate implements Payload.
func (p DocumentProposed) Validate() error { return check(p) }

// Validate implements Payload.
func (p ProposalResolved) Validate() error { return check(p) }

// Validate implements Payload.
func (p ThemeChanged) Validate() error { return check(p) }

// Validate implements Payload.
func (p ThemeRefused) Validate() error { return check(p) }

// Validate implements Payload.
func (p EgressDecided) Validate() error { return check(p) }

// Validate implements Payload.
func (p UsageMetered) Validate() error { return check(p) }

// Validate implements Payload.
func (p DesktopBuilt) Validate() error { return check(p) }

// Validate implements Payload.
func (p DesktopBroke) Validate() error { return check(p) }

// Validate implements Payload.
func (p WindowOpened) Validate() error { return check(p) }

// Validate implements Payload.
func (p WindowMoved) Validate() error { return check(p) }

// Validate implements Payload.
func (p WindowFocused) Validate() error { return check(p) }

// Validate implements Payload.
func (p WindowClosed) Validate() error { return check(p) }

// Validate implements Payload.
func (p SecretSet) Validate() error { return check(p) }

// Validate implements Payload.
func (p SecretRemoved) Validate() error { return check(p) }

func init() {
	register[BoxOpened](TypeInfo{Type: "box.opened", Doc: "A box runs.", By: host, Needs: CanRecord})
	register[BoxClosed](TypeInfo{Type: "box.closed", Doc: "A box ended.", By: host, Needs: CanRecord})
	register[FileWritten](TypeInfo{Type: "file.written", Doc: "A file was made or changed.", By: clientsOrHost, Needs: CanWrite, Projected: true})
	register[FileRemoved](TypeInfo{Type: "file.removed", Doc: "A file is gone.", By: clientsOrHost, Needs: CanWrite, Projected: true})
	register[RepositoryAdded](TypeInfo{Type: "repository.added", Doc: "choir add brought something in.", By: []ActorKind{KindPerson}, Needs: CanWrite, Projected: true})
	register[CheckpointCreated](TypeInfo{Type: "checkpoint.created", Doc: "The workspace was committed.", By: clientsOrHost, Needs: CanRestore, Projected: true})
	register[CheckpointRestored](TypeInfo{Type: "checkpoint.restored", Doc: "The workspace went back to a checkpoint.", By: clients, Needs: CanRestore, Projected: true})
	register[PublishStarted](TypeInfo{Type: "publish.started", Doc: "A task's merged tree is being applied.", By: host, Needs: CanRecord, Projected: true})
	register[PublishFinished](TypeInfo{Type: "publish.finished", Doc: "A task's merged tree is applied.", By: host, Needs: CanRecord, Projected: true})
	register[DocumentRevised](TypeInfo{Type: "document.revised", Doc: "One revision of a living document.", By: []ActorKind{KindPerson, KindApp, KindDirector, KindAssociate, KindSystem}, Needs: CanWrite, Projected: true})
	register[DocumentProposed](TypeInfo{Type: "document.proposed", Doc: "A change to a living document waits for a user.", By: []ActorKind{KindDirector, KindAssociate, KindSystem}, Needs: CanPropose, Projected: true})
	register[ProposalResolved](TypeInfo{Type: "proposal.resolved", Doc: "A proposed change was accepted, dismissed or superseded.", By: clientsOrHost, Needs: CanWrite, Projected: true})
	register[ThemeChanged](TypeInfo{Type: "theme.changed", Doc: "The theme file changed and is valid.", By: host, Needs: CanRecord, Projected: true})
	register[ThemeRefused](TypeInfo{Type: "theme.refused", Doc: "The theme file changed and is not valid.", By: host, Needs: CanRecord})
	register[EgressDecided](TypeInfo{Type: "egress.allowed", Doc: "A box was let out to one host.", By: host, Needs: CanRecord, Projected: true})
	register[EgressDecided](TypeInfo{Type: "egress.denied", Doc: "A box was refused a host.", By: host, Needs: CanRecord, Projected: true})
	register[UsageMetered](TypeInfo{Type: "usage.metered", Doc: "What one model call consumed.", By: host, Needs: CanRecord, Projected: true})
	register[DesktopBuilt](TypeInfo{Type: "desktop.built", Doc: "A build of the desktop is kept.", By: host, Needs: CanRecord, Projected: true})
	register[DesktopBroke](TypeInfo{Type: "desktop.broke", Doc: "The desktop is blank or throwing.", By: host, Needs: CanRecord})
	register[WindowOpened](TypeInfo{Type: "window.opened", Doc: "A window was opened.", By: clients, Needs: CanArrange, Action: true, Projected: true})
	register[WindowMoved](TypeInfo{Type: "window.moved", Doc: "A window was moved, resized, minimised or maximised.", By: clients, Needs: CanArrange, Action: true, Projected: true})
	register[WindowFocused](TypeInfo{Type: "window.focused", Doc: "A window was raised.", By: clients, Needs: CanArrange, Action: true, Projected: true})
	register[WindowClosed](TypeInfo{Type: "window.closed", Doc: "A window was closed.", By: clients, Needs: CanArrange, Action: true, Projected: true})
	register[SecretSet](TypeInfo{Type: "secret.set", Doc: "A secret was stored.", By: []ActorKind{KindPerson}, Needs: CanSecrets})
	register[SecretRemoved](TypeInfo{Type: "secret.removed", Doc: "A secret was removed.", By: []ActorKind{KindPerson}, Needs: CanSecrets})
}
