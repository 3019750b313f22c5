package wire

import "choir.dev/choiros/internal/fault"

// Error is how an error crosses the tether.
type Error struct {
	Code    fault.Code `json:"code"`
	Message string     `json:"message"`
	Hint    string     `json:"hint,omitempty"`
}

// Requests and replies with few fields.
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
	// StatRequest names a path; with Quick the file is not read, and has no id in the
	// answer.
	StatRequest struct {
		Path  Path `json:"path"`
		Quick bool `json:"quick,omitempty"`
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
	// KeepRequest lists the layers that are not removed.
	KeepRequest struct {
		Layers []string `json:"layers"`
	}
	// IgnoredReply lists directories that no checkpoint captures.
	IgnoredReply struct {
		Ignored []Path `json:"ignored"`
	}
	// FilesReply is a directory's content; More counts the entries that were not listed.
	FilesReply struct {
		Files []FileInfo `json:"files"`
		More  int        `json:"more,omitempty"`
	}
	// ReadRequest asks for bytes of a file, of the live tree or (with Commit) of a
	// checkpoint; Limit 0 means to the end. With Named the live tree's file itself is read,
	// not the target of a link, and the answer has its ids (IDHeader, StateHeader): the
	// bytes that follow are those of that id, or the answer breaks off.
	ReadRequest struct {
		Path   Path   `json:"path"`
		Commit string `json:"commit,omitempty"`
		Named  bool   `json:"named,omitempty"`
		Offset int64  `json:"offset,omitempty"`
		Limit  int64  `json:"limit,omitempty"`
	}
	// ContainsRequest asks which of Paths are files in each of Commits (at most MaxContains of
	// each), and whether one of Names exists in their folders or above. A name that ends in
	// a slash may be a folder.
	ContainsRequest struct {
		Commits []string `json:"commits"`
		Paths   []Path   `json:"paths"`
		Names   []string `json:"names"`
	}
	// ContainsReply is the answer, by commit and path. If Plain is false, the answer can't be
	// given in this form, and the rest is empty.
	ContainsReply struct {
		Plain bool     `json:"plain"`
		There [][]bool `json:"there,omitempty"`
	}
	// Empty is a request or a reply that says nothing more.
	Empty struct{}
)

// Headers of the answer to a read with Named: the id of the content, if there is one, and
// the id of the state in which the file was opened.
const (
	IDHeader    = "X-Choir-Id"
	StateHeader = "X-Choir-State"
)

// IsID reports whether a text can be the id of a file's content or state.
func IsID(s string) bool { return (len(s) == 40 || len(s) == 64) && IsHex(s) }
