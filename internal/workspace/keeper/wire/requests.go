package wire

import "choir.dev/choiros/internal/fault"

// Error is how an error crosses the tether.
type Error struct {
	Code    fault.Code `json:"code"`
	Message string     `json:"message"`
	Hint    string     `json:"hint,omitempty"`
}

// One field requests and replies.
type (
	// IDRequest names a plan.
	IDRequest struct {
		ID string `json:"id"`
	}
	// IDsRequest names operations.
	IDsRequest struct {
		IDs []string `json:"ids"`
	}
	// CommitRequest names a commit.
	CommitRequest struct {
		Commit string `json:"commit"`
	}
	// StatRequest names a path; Unread spares reading the file for its id.
	StatRequest struct {
		Path   Path `json:"path"`
		Unread bool `json:"unread,omitempty"`
	}
	// PathRequest names a path.
	PathRequest struct {
		Path Path `json:"path"`
	}
	// FilesRequest asks for a directory's entries that come after a name, at most
	// Limit of them (0: as many as may be asked for).
	FilesRequest struct {
		Path  Path   `json:"path"`
		After string `json:"after,omitempty"`
		Limit int    `json:"limit,omitempty"`
	}
	// KeepRequest lists the layers that stay.
	KeepRequest struct {
		Layers []string `json:"layers"`
	}
	// IgnoredReply lists directories that no checkpoint takes.
	IgnoredReply struct {
		Ignored []Path `json:"ignored"`
	}
	// FilesReply is a directory's content; More counts what was left out.
	FilesReply struct {
		Files []FileInfo `json:"files"`
		More  int        `json:"more,omitempty"`
	}
	// ReadRequest asks for bytes of a file, of the live tree or (with Commit)
	// of a checkpoint; Limit 0 means to the end. Named asks for the live tree's file
	// itself, not what a link leads to, and what names it (IDHeader, StateHeader): what
	// comes then is of what ID names, or breaks off.
	ReadRequest struct {
		Path   Path   `json:"path"`
		Commit string `json:"commit,omitempty"`
		Named  bool   `json:"named,omitempty"`
		Offset int64  `json:"offset,omitempty"`
		Limit  int64  `json:"limit,omitempty"`
	}
	// BesideRequest asks which of Paths are files in each of Commits, at most
	// MaxBeside of them, and whether one of Names lies in their folders or above. One
	// that ends in a slash may be a folder.
	BesideRequest struct {
		Commits []string `json:"commits"`
		Paths   []Path   `json:"paths"`
		Names   []string `json:"names"`
	}
	// BesideReply is the answer, by commit and path; without Plain there is more to
	// say than that, and nothing of it is said.
	BesideReply struct {
		Plain bool     `json:"plain"`
		There [][]bool `json:"there,omitempty"`
	}
	// Done is an empty reply.
	Done struct{}
)

// Headers of an answer to a read that is named: the id of what is read, if there is
// one, and of the state in which the file was opened.
const (
	IDHeader    = "X-Choir-Id"
	StateHeader = "X-Choir-State"
)

// IsID reports whether a text can be the id of a file's content or state.
func IsID(s string) bool { return (len(s) == 40 || len(s) == 64) && IsHex(s) }
